"""The sandbox for decoders: the protections of this machine, and the command line that starts a program inside.

`sandbox_launcher.py` applies the protections ("walls"). Each process measures once which ones this machine offers. An
unavailable protection is left out and reported by `callsheet doctor`; a required one that fails stops the program.
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
LOG_VARIABLE = "CALLSHEET_BOX_LOG"  # any value makes the kernel log each refused system call
ELF_LOADER = 3  # the type of the ELF segment that names the loader
START = "import sys; sys.path.append(sys.argv[1]); import sandbox_launcher; sandbox_launcher.main(sys.argv[2:])"
MB = 1024 * 1024
GB = 1024 * MB
# for a child that allocates pictures of one size repeatedly: glibc would return each to the system and fault in the
# next one page by page
KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * MB), "MALLOC_TRIM_THRESHOLD_": str(128 * MB)}
# the paths that a dynamic program needs to start; no user's files
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
    """The protections around a program. `namespace` and `seccomp` each cut off the network."""

    namespace: bool = False
    seccomp: bool = False
    landlock: bool = False
    drop: bool = False

    @property
    def no_network(self) -> bool:
        """Whether the program cannot send network packets."""
        return self.namespace or self.seccomp


class Limits(NamedTuple):
    """Resource limits of one program.

    `stall_s`: seconds without progress; `output_bytes`: total output, 0 for no limit.
    """

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
    """The files and folders that a program may access. `run` holds the programs that it may execute: itself."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    run: tuple[Path, ...] = ()


@cache
def walls() -> Walls:
    """Return the protections that this machine offers."""
    try:
        run = subprocess.run([*_launcher(), "--measure"], capture_output=True, timeout=MEASURE_S, check=True, env={})  # noqa: S603
        return Walls(**dict.fromkeys(run.stdout.decode().split(), True))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return Walls()


def sandboxed_command(
    command: Sequence[str], sight: Sight, limits: Limits, with_walls: Walls | None = None
) -> list[str]:
    """Return a command line that runs `command` inside the sandbox; its first word is an absolute path."""
    order = order_for(sight._replace(run=parts_of(Path(command[0]), sight.read)), limits, with_walls)
    return [*_launcher(), *order, "--", *command]


def order_for(sight: Sight, limits: Limits, with_walls: Walls | None = None) -> list[str]:
    """Return the launcher's orders, as words."""
    active_walls = walls() if with_walls is None else with_walls
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
    order += [f"wall={name}" for name, is_active in active_walls._asdict().items() if is_active]
    order += [f"read={place}" for place in (*system, *sight.read)]
    order += [f"run={place}" for place in sight.run]
    order += ["log=1"] if os.environ.get(LOG_VARIABLE) else []
    return order + [f"write={place}" for place in sight.write]


def parts_of(program: Path, read: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Return the files that must be executable for a program to run: the program and its loader.

    A script may start any program inside `read`: the operator accepted that by configuring a script.
    """
    loader = loader_of(program.resolve())
    if loader is None:
        return (program, *map(Path, _system()), *read)
    return (program, Path(loader)) if loader else (program,)


@cache
def loader_of(program: Path) -> str | None:
    """Return the loader that an ELF file names; empty for a static program, None for other files."""
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
    return [place for place in SYSTEM if os.path.exists(place)]  # noqa: PTH110 - ten checks per start


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a sandboxed program: no variable of the worker's, since those may hold secrets.

    A static ffmpeg crashes with a segmentation fault on MPEG-TS if it finds the system's character tables
    (GCONV_PATH).
    """
    return {"PATH": os.defpath, "HOME": str(home), "LC_ALL": "C.UTF-8", "GCONV_PATH": "/nonexistent"}


@cache
def of_python() -> tuple[Path, ...]:
    """Return the interpreter's folders, both as links and resolved."""
    places = [Path(place) for place in (sys.prefix, sys.base_prefix, sys.executable)]
    return tuple({*places, *(place.resolve() for place in places)})


def _launcher() -> list[str]:
    """Return the launcher's command. It runs as a module, so that Python uses the compiled file.

    Its folder comes last on the path, so that it shadows no other module.
    """
    return [sys.executable, "-I", "-S", "-c", START, str(LAUNCHER.parent)]
