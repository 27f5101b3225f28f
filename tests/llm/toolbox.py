"""Tools for tests, including misbehaving ones. They run in child processes, which import this module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from callsheet.llm.tools import Limits, Tools

tools = Tools(Limits(wall_s=60, cpu_s=10, memory_mb=512, file_mb=5, open_files=32, processes=8, output_kb=64))


@dataclass
class Size:
    width: int
    height: int


@tools.tool
def word_count(text: str, minimum: int = 1) -> dict[str, int]:
    print("this is not the answer")  # noqa: T201 - it must not mix with it
    return {"words": sum(len(word) >= minimum for word in text.split())}


@tools.tool
async def halved(size: Size) -> Size:
    return Size(size.width // 2, size.height // 2)


@tools.tool
def surroundings() -> dict[str, object]:
    return {"environment": dict(os.environ), "folder": str(Path.cwd()), "session": os.getsid(0) == os.getpid()}


@tools.tool
def fail(message: str) -> None:
    raise LookupError(message)


@tools.tool
def hog() -> int:
    return len(bytearray(2 * 1024**3))


@tools.tool(cpu_s=1)
def spin() -> None:
    while True:
        pass


@tools.tool(wall_s=3)
def sleep(pid_file: str) -> None:
    _write_pids(pid_file, subprocess.Popen(["sleep", "300"], start_new_session=True).pid)
    time.sleep(300)


@tools.tool
def wait(pid_file: str) -> None:
    group, session = (subprocess.Popen(["sleep", "300"], start_new_session=new).pid for new in (False, True))
    _write_pids(pid_file, group, session)
    time.sleep(300)


@tools.tool
def listen() -> str:
    return sys.stdin.read()


@tools.tool
def bomb(count_file: str) -> None:
    with Path(count_file).open("ab", buffering=0) as count:
        for _ in range(500):
            if os.fork() == 0:
                time.sleep(300)
                os._exit(0)
            count.write(b".")
            time.sleep(0.005)
    time.sleep(300)  # until somebody looks


@tools.tool
def leave_behind(pid_file: str) -> str:
    _write_pids(pid_file, subprocess.Popen(["sleep", "300"], start_new_session=True).pid)
    return "done"


@tools.tool
def flood_result(kilobytes: int) -> str:
    return "x" * (kilobytes * 1024)


@tools.tool
def flood_stderr() -> str:
    for _ in range(2_000):
        sys.stderr.write("x" * 10_000)
    return "quiet at last"


@tools.tool
def big_file() -> None:
    Path("big").write_bytes(b"x" * 10 * 1024 * 1024)


@tools.tool
def open_many() -> int:
    return len([Path("/dev/null").open("rb") for _ in range(100)])


@tools.tool
def die() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _write_pids(pid_file: str, *pids: int) -> None:
    temporary = Path(f"{pid_file}.tmp")
    temporary.write_text(" ".join(map(str, (os.getpid(), *pids))), "utf-8")
    temporary.rename(pid_file)
