"""The box from inside: a compromised decoder keeps the system calls for decoding, no others."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callsheet.media.binaries import find_ffmpeg
from callsheet.sandbox import system_calls
from callsheet.sandbox.command import Limits, Sight, Walls, loader_of, of_python, parts_of, sandboxed_command, walls
from callsheet.sandbox.system_calls import ALLOWED, BY_VALUE, CLONE, MACHINES, NEWER, TO_ITSELF, steps_for

HAS_SECCOMP = pytest.mark.skipif(not walls().seccomp, reason="this machine has no seccomp")
HAS_LANDLOCK = pytest.mark.skipif(not walls().landlock, reason="this kernel has no Landlock")
PID = 4711
CLONE_VM_AND_THREAD, NEW_USER, NEW_PID = 0x00010100, 0x10000000, 0x20000000
# what an attacker would like to call, by name, with the numbers of both machines
WANTED = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "ptrace": (101, 117),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "memfd_create": (319, 279),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "clone3": (435, 435),
    "execveat": (322, 281),
    "landlock_create_ruleset": (444, 444),
    "seccomp": (317, 277),
    "sched_setscheduler": (144, 119),
    "setpriority": (141, 140),
    "setuid": (105, 146),
    "capset": (126, 91),
    "init_module": (175, 105),
    "shmget": (29, 194),
    "chmod_at": (268, 53),
    "link_at": (265, 37),
    "mknod_at": (259, 33),
}
BEYOND = 600  # no kernel has so many
BLOCK_OR_FORK = {34, 57, 58, 130}  # pause, fork, vfork, rt_sigsuspend: where they worked, the test would not end
PROBES = {335, 336}  # of the kernel's own tracing: seccomp is not asked, and whoever else calls them is killed


def verdict(machine: str, call: int, *arguments: int, numbering: int | None = None) -> int:
    """Return the filter's verdict, interpreted step by step like the kernel."""
    own = MACHINES[machine][0] if numbering is None else numbering
    seen = {system_calls.NUMBER_AT: call, system_calls.MACHINE_AT: own}
    for place, value in enumerate(arguments):
        seen[system_calls.ARGUMENTS_AT + 8 * place] = value & 0xFFFFFFFF
    steps, at, loaded_modules = steps_for(machine, PID), 0, 0
    while True:
        code, yes, no, value = steps[at]
        if code == system_calls.ANSWER:
            return value
        if code == system_calls.LOAD:
            loaded_modules, at = seen.get(value, 0), at + 1
            continue
        holds = {
            system_calls.EQUAL: loaded_modules == value,
            system_calls.AT_LEAST: loaded_modules >= value,
            system_calls.ANY_BIT: bool(loaded_modules & value),
        }
        at += 1 + (yes if holds[code] else no)


def is_allowed(machine: str, call: int, *arguments: int) -> bool:
    return verdict(machine, call, *arguments) == system_calls.ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_that_is_not_listed_is_refused(machine: str) -> None:
    listing = {numbers[MACHINES[machine][1]] for numbers in ALLOWED.values()}
    odd = [0x7FFF] * 6  # no argument that any call is allowed with
    for call in range(BEYOND):
        refusal = system_calls.FAIL | (errno.ENOSYS if call >= NEWER else errno.EPERM)
        assert verdict(machine, call, *odd) == (system_calls.ALLOW if call in listing else refusal), call


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", WANTED)
def test_what_an_attacker_would_call_is_not_listed(machine: str, name: str) -> None:
    number = WANTED[name][MACHINES[machine][1]]
    assert number not in {numbers[MACHINES[machine][1]] for numbers in ALLOWED.values()}
    assert not any(is_allowed(machine, number, first, 0, 0) for first in (0, 1, PID, 0xFFFFFFFF))


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_machine_end_the_process_and_the_second_numbering_is_refused(machine: str) -> None:
    for numbering in (0x40000003, 0x40000028, *(number for number, _ in MACHINES.values())):  # i386, ARM
        if numbering != MACHINES[machine][0]:
            assert verdict(machine, 0, numbering=numbering) == system_calls.KILL
    assert not any(is_allowed(machine, 0x40000000 + call) for call in range(BEYOND))


@pytest.mark.parametrize("machine", MACHINES)
def test_only_threads_are_begun_and_only_itself_is_signalled(machine: str) -> None:
    at = MACHINES[machine][1]
    assert is_allowed(machine, CLONE[at], CLONE_VM_AND_THREAD)
    for flags in (0, 17, 0x4111, NEW_USER, CLONE_VM_AND_THREAD | NEW_USER, CLONE_VM_AND_THREAD | NEW_PID):
        assert not is_allowed(machine, CLONE[at], flags)
    for numbers in TO_ITSELF.values():
        assert is_allowed(machine, numbers[at], PID, 6)
        assert not any(is_allowed(machine, numbers[at], pid, 9) for pid in (0, 1, PID + 1, -1, -PID))
    for numbers, argument, values in BY_VALUE.values():
        before = [0] * argument
        assert all(is_allowed(machine, numbers[at], *before, value) for value in values)
        assert not any(is_allowed(machine, numbers[at], *before, value) for value in (8, 10, 22, 38, 0x5412, 99999))


def inside(code: str, *, with_walls: Walls | None = None) -> Any:
    """What a small Python program says inside the box, as JSON."""
    command = [sys.executable, "-I", "-S", "-c", code]
    line = sandboxed_command(command, Sight(read=of_python()), Limits(), with_walls)
    run = subprocess.run(line, capture_output=True, check=False, timeout=60)
    assert run.returncode == 0, (run.returncode, run.stderr)
    return json.loads(run.stdout)


TRY_ALL = """
import ctypes, json
libc = ctypes.CDLL(None, use_errno=True)
said = {}
for call in %r:
    ctypes.set_errno(0)
    done = libc.syscall(call, *[ctypes.c_long(-1)] * 6)
    said[call] = ctypes.get_errno() if done < 0 else 0
print(json.dumps(said))
"""


@HAS_SECCOMP
def test_the_kernel_refuses_every_call_that_is_not_listed() -> None:
    at = MACHINES[os.uname().machine][1]
    listing = {numbers[at] for numbers in (*ALLOWED.values(), *TO_ITSELF.values(), CLONE)}
    listing |= {numbers[at] for numbers, _, _ in BY_VALUE.values()}
    calls = [call for call in range(BEYOND) if call not in listing | BLOCK_OR_FORK | PROBES]
    output = inside(TRY_ALL % calls, with_walls=Walls(seccomp=True, drop=walls().drop))
    assert len(output) == len(calls)
    assert {call for call in calls if output[str(call)] != (errno.ENOSYS if call >= NEWER else errno.EPERM)} == set()


TRY_SOME = """
import ctypes, json, os, signal, socket, threading
def told(act):
    try:
        act()
        return 0
    except OSError as error:
        return error.errno
libc = ctypes.CDLL(None, use_errno=True)
def called(name, *words):
    if getattr(libc, name)(*words) < 0:
        raise OSError(ctypes.get_errno(), name)
ran = []
thread = threading.Thread(target=ran.append, args=(1,))
thread.start()
thread.join()
print(json.dumps({
    "thread": len(ran),
    "fork": told(lambda: os.fork() or os._exit(0)),
    "spawn": told(lambda: os.posix_spawn("/bin/true", ["true"], {})),
    "exec": told(lambda: os.execv("/bin/true", ["true"])),
    "socket": told(socket.socket),
    "pair": told(socket.socketpair),
    "memfd": told(lambda: os.memfd_create("x")),
    "unshare": told(lambda: called("unshare", 0x10000000)),
    "ptrace": told(lambda: called("ptrace", 0, 0, 0, 0)),
    "mount": told(lambda: called("mount", b"none", b"/tmp", b"tmpfs", 0, None)),
    "kill": told(lambda: os.kill(os.getppid(), 0)),
    "group": told(lambda: os.kill(0, 0)),
    "nice": told(lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)),
    "itself": told(lambda: os.kill(os.getpid(), 0)),
}))
"""


@HAS_SECCOMP
def test_a_program_in_the_box_has_threads_and_nothing_to_reach_others_with() -> None:
    output = inside(TRY_SOME)
    assert (output.pop("thread"), output.pop("itself")) == (1, 0)
    assert output.pop("exec") in {errno.EACCES, errno.EPERM} or not walls().landlock
    assert set(output.values()) == {errno.EPERM}, output


TRY_STARTING = """
import json, os
def told(act):
    try:
        act()
        return 0
    except OSError as error:
        return error.errno
def forked():
    child = os.fork() or os._exit(0)
    os.waitpid(child, 0)
print(json.dumps({
    "fork": told(forked),
    "spawn": told(lambda: os.posix_spawn("/bin/true", ["true"], {})),
    "exec": told(lambda: os.execv("/bin/true", ["true"])),
}))
"""


@HAS_LANDLOCK
def test_landlock_alone_starts_no_other_program() -> None:
    output = inside(
        TRY_STARTING, with_walls=Walls(landlock=True)
    )  # of system calls nothing is refused: it asks for few
    assert (output["exec"], output["spawn"], output["fork"]) == (errno.EACCES, errno.EACCES, 0)


def test_a_program_is_started_by_itself_and_its_loader(tmp_path: Path) -> None:
    for program in (Path(sys.executable), find_ffmpeg()):
        loader = loader_of(program.resolve())
        assert parts_of(program) == ((program, Path(loader)) if loader else (program,))
    script = tmp_path / "ffmpeg"
    script.write_text('#!/bin/sh\nexec /bin/echo "$@"\n')
    script.chmod(0o700)
    assert loader_of(script) is None
    run = subprocess.run(
        sandboxed_command([str(script), "here"], Sight(), Limits()), capture_output=True, check=True, timeout=60
    )
    assert run.stdout == b"here\n", "a script that somebody set as the program may start what it is for"


@HAS_SECCOMP
def test_what_is_refused_can_be_logged_and_stays_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_BOX_LOG", "1")
    assert inside(TRY_ALL % [41]) == {"41": errno.EPERM}
