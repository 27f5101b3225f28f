"""The launcher: limits itself, then becomes the program. `ORDER… -- program args…`, where ORDER is words `name=value`.

It runs in a process of its own, because what it does (prctl, unshare) must not happen between fork and exec of a
process with threads. It imports next to nothing (no json, no typing, no signal: each costs as much as Python's own
start), which leaves some 20 ms. `box.order_for` makes its orders. A measure that is asked for and cannot be had ends it
with REFUSED: nothing runs half protected.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import sys

TYPE_CHECKING = False  # as in typing, which is not imported
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Order = dict[str, list[str]]

SIGKILL = 9
REFUSED = 126
LIMITS = ("AS", "CPU", "FSIZE", "NOFILE", "CORE")
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
LAST_CAPABILITY = 63
SECCOMP_MODE_FILTER = 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION = 1
SIGNALS_ABI, SOCKETS_ABI = 6, 4
# what a file may be opened for; the rest of the rights are about folders
EXECUTE, WRITE, READ, READ_FOLDER, REFER, TRUNCATE, DEVICE_IOCTL = 1, 2, 4, 8, 1 << 13, 1 << 14, 1 << 15
MOST_FOLDER_RIGHTS = sum(1 << bit for bit in range(3, 13))  # list, remove and make whatever
SPECIAL_FILES = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12  # devices, sockets, pipes, links
AS_READ = EXECUTE | READ | READ_FOLDER
# by machine: its number for seccomp, then calls that no media program needs: socket, connect, io_uring_setup, ptrace,
# process_vm_readv, process_vm_writev, mount, bpf, userfaultfd, keyctl, add_key, request_key, perf_event_open, setns
MACHINES = {
    "x86_64": (0xC000003E, (41, 42, 425, 101, 310, 311, 165, 321, 323, 250, 248, 249, 298, 308)),
    "aarch64": (0xC00000B7, (198, 203, 425, 117, 270, 271, 40, 280, 282, 219, 217, 218, 241, 268)),
}
KILL, FAIL, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
X32_CALLS = 0x40000000  # the second numbering of x86_64, which would go round the list


class CannotRestrict(Exception):
    """The system refused a measure."""


def main(arguments: list[str]) -> None:
    """Measure what can be had here, or become a program."""
    if arguments == ["--measure"]:
        sys.stdout.write(" ".join(name for name, works in measured().items() if works))
        return
    end = arguments.index("--")
    program = arguments[end + 1 :]
    try:
        restrict(read_order(arguments[:end]))
    except (CannotRestrict, OSError, ValueError) as error:
        sys.stderr.write(f"sandbox: {error}\n")
        sys.exit(REFUSED)
    try:
        os.execv(program[0], program)  # noqa: S606 - the program is the caller's choice, and an absolute path
    except OSError as error:
        sys.stderr.write(f"sandbox: {program[0]} does not start: {error.strerror}\n")
        sys.exit(REFUSED)


def read_order(words: list[str]) -> Order:
    """All values by name."""
    order: Order = {"read": [], "write": [], "wall": []}
    for word in words:
        name, _, value = word.partition("=")
        order.setdefault(name, []).append(value)
    return order


def restrict(order: Order) -> None:
    """Everything that an order asks for, in the one sequence that works."""
    walls = order["wall"]
    os.nice(int(order["nice"][0]))
    for name in LIMITS:
        _set_limit(name, int(order[name][0]))
    if sys.platform == "linux":
        if "namespace" in walls:
            _leave_the_network()
        if "drop" in walls:
            _drop_capabilities()
        _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if "landlock" in walls:
            _see_only(order["read"], order["write"])
        _call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        if "seccomp" in walls:
            _forbid_calls()
    if os.getppid() != int(order["parent"][0]):  # it died before it could take us along
        raise CannotRestrict("the process that asked for this is gone")


def _set_limit(name: str, value: int) -> None:
    kind = getattr(resource, f"RLIMIT_{name}")
    most = resource.getrlimit(kind)[1]
    hard = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(kind, (hard, hard))


def _leave_the_network() -> None:
    """A network namespace with nothing in it, not even a loopback that is up."""
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", CLONE_NEWNET)
    except CannotRestrict:
        _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")


def _drop_capabilities() -> None:
    """A worker that runs as root gives none of root's powers to a decoder: exec takes them from this set."""
    for capability in range(LAST_CAPABILITY + 1):
        if _libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 and ctypes.get_errno() != errno.EINVAL:
            raise CannotRestrict(f"a capability stays: {os.strerror(ctypes.get_errno())}")


def _see_only(read: list[str], write: list[str]) -> None:
    """Landlock: of all files, those below `read` can be read and run, and those below `write` changed."""
    abi = _libc().syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION)
    known = EXECUTE | WRITE | READ | MOST_FOLDER_RIGHTS
    known |= (REFER if abi > 1 else 0) | (TRUNCATE if abi > 2 else 0) | (DEVICE_IOCTL if abi > 4 else 0)  # noqa: PLR2004
    fields = [known]
    if abi >= SOCKETS_ABI:
        fields.append(0b11)  # bind and connect
    if abi >= SIGNALS_ABI:
        fields.append(0b11)  # sockets without a path, and signals to those outside
    rules = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = _call("syscall", LANDLOCK_CREATE, rules, len(rules), 0)
    for paths, rights in ((read, AS_READ), (write, known & ~SPECIAL_FILES & ~EXECUTE)):
        for path in paths:
            _allow(ruleset, path, rights)
    _call("syscall", LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - pathlib costs 10 ms
            rights &= EXECUTE | READ | WRITE | TRUNCATE
        _call("syscall", LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _forbid_calls() -> None:
    """Seccomp: a call on the list fails with EPERM; one of another machine's numbering ends the process."""
    number, calls = MACHINES[os.uname().machine]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    count = len(calls)
    steps = [(load, 0, 0, 4), (equal, 1, 0, number), (answer, 0, 0, KILL), (load, 0, 0, 0)]
    steps += [(at_least, count + 1, 0, X32_CALLS)]
    steps += [(equal, count - at, 0, call) for at, call in enumerate(calls)]  # each jumps to the last answer
    steps += [(answer, 0, 0, ALLOW), (answer, 0, 0, FAIL | errno.EPERM)]
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(filters)))
    _call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)


def measured() -> dict[str, bool]:
    """What can be had here, each tried in a process of its own."""
    here = sys.platform == "linux"
    return {
        "namespace": here and _works(_leave_the_network, errno.ENETUNREACH),
        "seccomp": here and os.uname().machine in MACHINES and _works(_forbid_alone, errno.EPERM),
        "landlock": here and _libc().syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION) > 0,
        "drop": here and os.geteuid() == 0 and _works(_drop_capabilities, None),
    }


def _forbid_alone() -> None:
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _forbid_calls()


def _works(measure: Callable[[], None], expected: int | None) -> bool:
    """Take a measure, and see that it keeps a packet for a neighbour (a documentation address) from leaving."""
    import socket  # noqa: PLC0415 - only here

    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    code = 1
    try:
        measure()
        if expected is None:
            code = 0
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(("192.0.2.1", 9))
    except OSError as error:
        code = int(error.errno != expected)
    except BaseException:  # noqa: BLE001 - any other end means no
        code = 1
    finally:
        os._exit(code)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> int:
    """A function of libc, checked."""
    whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = getattr(_libc(), name)(*whole)
    if result < 0:
        raise CannotRestrict(f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs 10 ms
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
