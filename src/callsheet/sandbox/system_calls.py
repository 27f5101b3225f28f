"""The system calls that a sandboxed program may make, as a seccomp filter; every other call is refused.

The list comes from all media tests under `strace -f` (ffmpeg 9.0.2, PyAV, OCR, speech, drawing), plus the calls that
the comments name. The first number is that of x86_64, the second that of aarch64, which lacks the older form of some
calls. No listed call reaches another process, the network, kernel settings, or a file that Landlock hides.
"""

from __future__ import annotations

import errno

X86_64, AARCH64 = 0, 1
MACHINES = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, AARCH64)}  # seccomp's code of each machine
NEWER = 424  # calls from here on are of recent years, numbered alike everywhere: programs do without those they lack

ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # bytes of files that are open; readv and writev are the stdio of musl, pwrite64 and ftruncate write indexes
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "lseek": (8, 62),
    "close": (3, 57),
    "ftruncate": (77, 46),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "fadvise64": (221, 223),  # musl's and rust's readers announce that they read in order
    # files by name; which ones is for Landlock. HLS makes folders, renames and removes; the rest is what libc looks at
    "open": (2, None),
    "openat": (257, 56),
    "stat": (4, None),
    "lstat": (6, None),
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    # descriptors, and waiting for them; Python tries whether epoll is there when it is imported
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "epoll_create1": (291, 20),
    # its own memory
    "brk": (12, 214),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "madvise": (28, 233),
    # its own threads and their locks; encoders ask for their priority and are not let change it
    "futex": (202, 98),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "rseq": (334, 293),
    "gettid": (186, 178),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
    "arch_prctl": (158, None),  # where a thread has its own variables
    # its own signals
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    # time and chance; mostly without a call, except on kernels without a vDSO
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "getrandom": (318, 278),
    # who and where it is
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getpgrp": (111, None),
    "getpgid": (121, 155),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "uname": (63, 160),
    "getcpu": (309, 168),
    # becoming the program (which one is for Landlock), and the end
    "execve": (59, 221),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
# allowed for some values of one argument: the call, which argument, and the values
FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1031, 1032)  # copies, flags, locks, sizes of pipes; no owner to be signalled
IOCTL = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451)  # is it a terminal, how wide, how many bytes wait, close on exec
PRCTL = (15, 16)  # names of threads
BY_VALUE: dict[str, tuple[tuple[int, int], int, tuple[int, ...]]] = {
    "fcntl": ((72, 25), 1, FCNTL),
    "ioctl": ((16, 29), 1, IOCTL),
    "prctl": ((157, 167), 0, PRCTL),
    "prlimit64": ((302, 261), 0, (0,)),  # its own limits, which only go down
}
TO_ITSELF: dict[str, tuple[int, int]] = {"kill": (62, 129), "tgkill": (234, 131)}  # abort() and raise()
CLONE = (56, 220)  # allowed for threads alone: with the one flag, and none of the others
CLONE_THREAD, NAMESPACES = 0x00010000, 0x7E020000

# a filter step: opcode, jump if true, jump if false, value; below, the opcodes and verdicts
Step = tuple[int, int, int, int]
LOAD, EQUAL, AT_LEAST, ANY_BIT, ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
KILL, FAIL, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
NUMBER_AT, MACHINE_AT, ARGUMENTS_AT = 0, 4, 16  # offsets in seccomp's data about a call
X32_CALLS = 0x40000000  # the second numbering of x86_64, which would go round the list
REFUSED: Step = (ANSWER, 0, 0, FAIL | errno.EPERM)
UNKNOWN: Step = (ANSWER, 0, 0, FAIL | errno.ENOSYS)
ALLOWED_STEP: Step = (ANSWER, 0, 0, ALLOW)


def steps_for(machine: str, own_pid: int) -> list[Step]:
    """Return the filter: a call with another machine's numbering kills the process, an unlisted call fails."""
    number, at = MACHINES[machine]
    steps: list[Step] = [(LOAD, 0, 0, MACHINE_AT), (EQUAL, 1, 0, number), (ANSWER, 0, 0, KILL)]
    steps += [(LOAD, 0, 0, NUMBER_AT), (AT_LEAST, 0, 1, X32_CALLS), REFUSED]
    for numbers, argument, values in BY_VALUE.values():
        steps += _when(numbers[at], _one_of(argument, values))
    for numbers in TO_ITSELF.values():
        steps += _when(numbers[at], _one_of(0, (own_pid,)))
    flags = [(LOAD, 0, 0, ARGUMENTS_AT), (ANY_BIT, 1, 0, NAMESPACES), (ANY_BIT, 1, 0, CLONE_THREAD)]
    steps += _when(CLONE[at], [*flags, REFUSED, ALLOWED_STEP])
    calls = [call for numbers in ALLOWED.values() if (call := numbers[at]) is not None]
    steps += [(EQUAL, len(calls) - before + 2, 0, call) for before, call in enumerate(calls)]  # to the last step
    return [*steps, (AT_LEAST, 1, 0, NEWER), REFUSED, UNKNOWN, ALLOWED_STEP]


def _when(call: int, block: list[Step]) -> list[Step]:
    """Return a block for one call, which ends in a verdict; other calls jump over the block."""
    return [(EQUAL, 0, len(block), call), *block]


def _one_of(argument: int, values: tuple[int, ...]) -> list[Step]:
    """Allow a call if the lower half of one argument is a listed value; the kernel reads only that half."""
    tests: list[Step] = [(EQUAL, len(values) - before, 0, value) for before, value in enumerate(values)]
    return [(LOAD, 0, 0, ARGUMENTS_AT + 8 * argument), *tests, REFUSED, ALLOWED_STEP]
