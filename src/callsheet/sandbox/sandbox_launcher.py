"""The sandbox launcher: it limits itself, then becomes the program. `ORDER… -- program args…`, ORDER as `name=value`.

It runs as its own process, because its system calls (prctl, unshare) must not happen between fork and exec of a
process with threads. It imports almost no module (no json, typing or signal: each costs as much as Python's own
start), so it takes some 20 ms. `sandbox.order_for` writes its orders. If a required protection fails, it exits with
EXIT_REFUSED: no program runs half protected.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import sys

TYPE_CHECKING = False  # as in typing, which is not imported
if TYPE_CHECKING or __package__:
    from . import system_calls
else:  # the launcher has this folder on its path, and no package
    import system_calls
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Order = dict[str, list[str]]

SIGKILL = 9
EXIT_REFUSED = 126
LIMITS = ("AS", "CPU", "FSIZE", "NOFILE", "CORE")
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
LAST_CAPABILITY = 63
SECCOMP_FILTER, SECCOMP_LOG = 1, 2  # operation and flag of the seccomp call: install a filter, log refused calls
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION = 1
SIGNALS_ABI, SOCKETS_ABI = 6, 4
# the rights on files; all others are rights on folders
EXECUTE, WRITE, READ, READ_FOLDER, REFER, TRUNCATE, DEVICE_IOCTL = 1, 2, 4, 8, 1 << 13, 1 << 14, 1 << 15
MOST_FOLDER_RIGHTS = sum(1 << bit for bit in range(3, 13))  # list, remove and create files of any kind
SPECIAL_FILES = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12  # devices, sockets, pipes, links
AS_READ = READ | READ_FOLDER


class CannotRestrict(Exception):
    """The system refused a protection."""


def main(arguments: list[str]) -> None:
    """Measure this machine's protections, or apply them and become a program."""
    if arguments == ["--measure"]:
        sys.stdout.write(" ".join(name for name, works in measure_walls().items() if works))
        return
    end = arguments.index("--")
    program = arguments[end + 1 :]
    try:
        restrict(read_order(arguments[:end]))
    except (CannotRestrict, OSError, ValueError) as error:
        sys.stderr.write(f"sandbox: {error}\n")
        sys.exit(EXIT_REFUSED)
    try:
        os.execv(program[0], program)  # noqa: S606 - the program is the caller's choice, and an absolute path
    except OSError as error:
        sys.stderr.write(f"sandbox: {program[0]} does not start: {error.strerror}\n")
        sys.exit(EXIT_REFUSED)


def read_order(words: list[str]) -> Order:
    """Return the values of an order by name."""
    order: Order = {"read": [], "write": [], "run": [], "wall": []}
    for word in words:
        name, _, value = word.partition("=")
        order.setdefault(name, []).append(value)
    return order


def restrict(order: Order) -> None:
    """Apply all protections of an order, in the only sequence that works."""
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
            _restrict_files(order)
        _call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        if "seccomp" in walls:
            _forbid_calls(is_logged="log" in order)
    if os.getppid() != int(order["parent"][0]):  # it died before the death signal was set
        raise CannotRestrict("the parent process has ended")


def _set_limit(name: str, value: int) -> None:
    kind = getattr(resource, f"RLIMIT_{name}")
    most = resource.getrlimit(kind)[1]
    hard = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(kind, (hard, hard))


def _leave_the_network() -> None:
    """Enter an empty network namespace; even its loopback is down."""
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", CLONE_NEWNET)
    except CannotRestrict:
        _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")


def _drop_capabilities() -> None:
    """Empty the capability set that exec inherits, so that root's powers do not reach a decoder."""
    for capability in range(LAST_CAPABILITY + 1):
        if _libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 and ctypes.get_errno() != errno.EINVAL:
            raise CannotRestrict(f"a capability stays: {os.strerror(ctypes.get_errno())}")


def _restrict_files(order: Order) -> None:
    """Landlock: allow reading below the `read` paths, changes below `write`, and execution of `run`."""
    abi = _libc().syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION)
    handled_rights = EXECUTE | WRITE | READ | MOST_FOLDER_RIGHTS
    handled_rights |= (REFER if abi > 1 else 0) | (TRUNCATE if abi > 2 else 0) | (DEVICE_IOCTL if abi > 4 else 0)  # noqa: PLR2004
    fields = [handled_rights]
    if abi >= SOCKETS_ABI:
        fields.append(0b11)  # bind and connect
    if abi >= SIGNALS_ABI:
        fields.append(0b11)  # sockets without a path, and signals to those outside
    rules = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = _call("syscall", LANDLOCK_CREATE, rules, len(rules), 0)
    rights_by_order = {"read": AS_READ, "write": handled_rights & ~SPECIAL_FILES & ~EXECUTE, "run": AS_READ | EXECUTE}
    for name, rights in rights_by_order.items():
        for path in order[name]:
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


def _forbid_calls(*, is_logged: bool = False) -> None:
    """Seccomp: refuse all calls that `system_calls.py` does not list; the kernel's log can name them."""
    machine = os.uname().machine
    steps = system_calls.steps_for(machine, os.getpid())
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(filters)))
    _call("syscall", SECCOMP_CALL[machine], SECCOMP_FILTER, SECCOMP_LOG if is_logged else 0, program)


def measure_walls() -> dict[str, bool]:
    """Return which protections work here, each tried in its own process."""
    here = sys.platform == "linux"
    return {
        "namespace": here and _works(_leave_the_network, errno.ENETUNREACH),
        "seccomp": here and os.uname().machine in system_calls.MACHINES and _works(_forbid_alone, errno.EPERM),
        "landlock": here and _libc().syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION) > 0,
        "drop": here and os.geteuid() == 0 and _works(_drop_capabilities, None),
    }


def _forbid_alone() -> None:
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _forbid_calls()


def _works(measure: Callable[[], None], errno_when_blocked: int | None) -> bool:
    """Try a protection in a forked child, and check that it blocks a UDP packet (to a documentation address)."""
    import socket  # noqa: PLC0415 - only here

    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    code = 1
    try:
        measure()
        if errno_when_blocked is None:
            code = 0
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(("192.0.2.1", 9))
    except OSError as error:
        code = int(error.errno != errno_when_blocked)
    except BaseException:  # noqa: BLE001 - any other error means that it does not work
        code = 1
    finally:
        os._exit(code)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> int:
    c_arguments = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = getattr(_libc(), name)(*c_arguments)
    if result < 0:
        raise CannotRestrict(f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs 10 ms
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
