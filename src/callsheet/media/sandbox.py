"""The box that decoders run in: which of its walls this machine has, and the command line that puts a program inside.

`sandbox_launcher.py` builds the walls. They are measured once per process; a wall that is missing is left out here and told of
by `callsheet doctor`, while one that is asked for and cannot be had keeps the program from running.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

LAUNCHER = Path(__file__).with_name("sandbox_launcher.py")
MEASURE_S = 10.0
LOGS = "CALLSHEET_BOX_LOG"  # set to anything: the kernel's log names each call that the box refuses
ELF_LOADER = 3  # the kind of a part of an ELF file
START = "import sys; sys.path.append(sys.argv[1]); import sandbox_launcher; sandbox_launcher.main(sys.argv[2:])"
MB = 1024 * 1024
GB = 1024 * MB
# for a child that makes pictures of one size again and again: glibc would give each back and have the next faulted in
# anew, page by page
KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * MB), "MALLOC_TRIM_THRESHOLD_": str(128 * MB)}
# what a dynamic program needs to start; nothing of a user's
SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/nix/store",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    "/dev/random",
)


class Walls(NamedTuple):
    """What keeps a program in. `namespace` and `seccomp` each take the network away."""

    namespace: bool = False
    seccomp: bool = False
    landlock: bool = False
    drop: bool = False

    @property
    def no_network(self) -> bool:
        """Not a packet leaves."""
        return self.namespace or self.seccomp


class Limits(NamedTuple):
    """What one program may use. `stall_s`: how long nothing may move; `output_bytes`: all that it writes, 0 for any."""

    wall_s: float = 6 * 3600.0
    stall_s: float = 120.0
    cpu_s: int = 24 * 3600
    memory_bytes: int = 6 * GB
    file_bytes: int = 200 * GB
    output_bytes: int = 0
    free_bytes: int = 256 * MB
    open_files: int = 256
    nice: int = 5


class Sight(NamedTuple):
    """The files and folders that a program may see. `run` are the programs that may be started: itself."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    run: tuple[Path, ...] = ()


@cache
def walls() -> Walls:
    """Those of this machine."""
    try:
        run = subprocess.run([*_launcher(), "--measure"], capture_output=True, timeout=MEASURE_S, check=True, env={})  # noqa: S603
        return Walls(**dict.fromkeys(run.stdout.decode().split(), True))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return Walls()


def boxed(command: Sequence[str], sight: Sight, limits: Limits, with_walls: Walls | None = None) -> list[str]:
    """A command line that runs `command`, whose first word is an absolute path, inside the box."""
    order = order_for(sight._replace(run=parts_of(Path(command[0]), sight.read)), limits, with_walls)
    return [*_launcher(), *order, "--", *command]


def order_for(sight: Sight, limits: Limits, with_walls: Walls | None = None) -> list[str]:
    """What the launcher is told, as words."""
    chosen = walls() if with_walls is None else with_walls
    system = _system()
    most = {
        "AS": limits.memory_bytes,
        "CPU": limits.cpu_s,
        "FSIZE": min(limits.file_bytes, limits.output_bytes or limits.file_bytes),
        "NOFILE": limits.open_files,
        "CORE": 0,
    }
    order = [f"nice={limits.nice}", f"parent={os.getpid()}"]
    order += [f"{name}={value}" for name, value in most.items()]
    order += [f"wall={name}" for name, asked in chosen._asdict().items() if asked]
    order += [f"read={place}" for place in (*system, *sight.read)]
    order += [f"run={place}" for place in sight.run]
    order += ["log=1"] if os.environ.get(LOGS) else []
    return order + [f"write={place}" for place in sight.write]


def parts_of(program: Path, read: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """What has to be started for a program to run: itself and its loader.

    A script starts whatever it likes of what can be read: that is the choice of whoever set it as the program.
    """
    loader = loader_of(program.resolve())
    if loader is None:
        return (program, *map(Path, _system()), *read)
    return (program, Path(loader)) if loader else (program,)


@cache
def loader_of(program: Path) -> str | None:
    """The loader that an ELF file names, empty for a static one; None for a file that is no ELF."""
    try:
        with program.open("rb") as file:
            head = file.read(64)
            if head[:4] != b"\x7fELF" or len(head) < 64:  # noqa: PLR2004 - the size of its head
                return None
            at, size, count = struct.unpack_from("<Q14xHH", head, 32)
            file.seek(at)
            table = file.read(size * count)
            for start in range(0, len(table), size):
                kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", table, start)
                if kind == ELF_LOADER:
                    file.seek(offset)
                    return os.fsdecode(file.read(length).rstrip(b"\0"))
    except (OSError, struct.error):
        return None
    return ""


def _system() -> list[str]:
    return [place for place in SYSTEM if os.path.exists(place)]  # noqa: PTH110 - ten looks a start


def environment(home: Path) -> dict[str, str]:
    """For a program in the box: nothing of the worker's own environment, which may hold secrets.

    A static ffmpeg dies of a segmentation fault on MPEG-TS when it finds the system's character tables (GCONV_PATH).
    """
    return {"PATH": os.defpath, "HOME": str(home), "LC_ALL": "C.UTF-8", "GCONV_PATH": "/nonexistent"}


@cache
def of_python() -> tuple[Path, ...]:
    """What the interpreter reads; the links of an environment and what they lead to."""
    places = [Path(place) for place in (sys.prefix, sys.base_prefix, sys.executable)]
    return tuple({*places, *(place.resolve() for place in places)})


def _launcher() -> list[str]:
    """As a module, not as a script: so Python takes the compiled file. The folder comes last, so it hides nothing."""
    return [sys.executable, "-I", "-S", "-c", START, str(LAUNCHER.parent)]
