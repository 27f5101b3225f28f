"""The other side of `executor="process"`: a child that runs one function after another, and the `ctx` it gives them.

Orders, questions and answers are frames on one socket: pickled builtins and the kernel's own records. The child asks,
the parent answers, one question at a time, so that an error is raised by the very call that is wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from functools import cached_property, lru_cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from callsheet.kernel import errors
from callsheet.kernel.errors import CallsheetError, InvalidInput, StaleClaim
from callsheet.kernel.wire import encode

from .children import Children
from .context import Context, MakesJobs
from .definition import Definition
from .run import Written
from .signals import Fatal, Retry, Snooze
from .steps import STEP_LIMIT_BYTES, Step

if TYPE_CHECKING:
    from callsheet.kernel.job import Job

HEAD = struct.Struct("!I")
DONE, FAILED, ANSWER = "done", "failed", "answer"
STOPS = frozenset({signal.SIGINT, signal.SIGTERM})
PR_SET_PDEATHSIG = 1
TRACE_LIMIT = 8_000


class Order(NamedTuple):
    """One attempt, as the child needs it."""

    module: str
    qualname: str
    name: str
    payload: str
    job_id: str
    attempt: int


class ChildError(Exception):
    """An exception of a child; the one that is raised has the name of the original, and its traceback as a note."""


class Told(NamedTuple):
    """An exception on its way to the other process. `more`: after_ms, delay_ms or code, for those that have one."""

    kind: str
    module: str
    message: str
    trace: str
    more: Any = None


def packed(message: tuple[Any, ...]) -> bytes:
    """A message as a frame."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return HEAD.pack(len(data)) + data


def tell(error: BaseException) -> Told:
    """An exception in words, with the traceback from the user's function on."""
    trace = error.__traceback__
    text = "".join(traceback.format_exception(type(error), error, trace and (trace.tb_next or trace)))[-TRACE_LIMIT:]
    match error:
        case Retry():
            return Told("Retry", Retry.__module__, str(error), text, error.after_ms)
        case Snooze():
            return Told("Snooze", Snooze.__module__, str(error), text, error.delay_ms)
        case Fatal():
            return Told("Fatal", Fatal.__module__, str(error), text, error.code)
    return Told(type(error).__name__, type(error).__module__, str(error), text)


def told(words: Told) -> Exception:
    """The exception that the other process raised: our own as they were, others by name."""
    error: Any
    match words.kind, words.module:
        case "Retry", Retry.__module__:
            error = Retry(words.message)
            error.after_ms = words.more
        case "Snooze", Snooze.__module__:
            error = Snooze(0)
            error.delay_ms = words.more
        case "Fatal", Fatal.__module__:
            error = Fatal(words.message, code=words.more)
        case name, errors.__name__ if issubclass(getattr(errors, name, Exception), CallsheetError):
            error = getattr(errors, name)(words.message)
        case name, module:
            error = type(name, (ChildError,), {"__module__": module})(words.message)
    error.add_note(f"In the child process:\n{words.trace}")
    return error  # type: ignore[no-any-return]


def found(module: Any, qualname: str) -> Callable[..., Any]:
    """The function of this name; a task gives its own. Raises AttributeError."""
    value = module
    for part in qualname.split("."):
        value = getattr(value, part)
    return value.function if isinstance(getattr(value, "definition", None), Definition) else value  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def _definition(module: str, qualname: str, name: str) -> Definition:
    try:
        function = found(importlib.import_module(module), qualname)
    except AttributeError:
        told = f"{module}.{qualname} is not there when a child process imports the module"
        raise Fatal(f"task {name}: {told}; is it declared in a condition or in a block?", code="invalid_task") from None
    return Definition(name, function, executor="process")


class Line:
    """The child's end of the socket. `lock` is held from a question to its answer."""

    def __init__(self, connected: socket.socket) -> None:
        self.lock = threading.Lock()
        self._socket = connected
        self._input = connected.makefile("rb")

    def send(self, message: tuple[Any, ...]) -> None:
        """Write one frame; blocks until the parent has room for it."""
        self._socket.sendall(packed(message))

    def receive(self) -> Any:
        """Read one frame; raises EOFError when the parent has hung up."""
        head = self._input.read(HEAD.size)
        if len(head) < HEAD.size:
            raise EOFError
        return pickle.loads(self._input.read(*HEAD.unpack(head)))  # noqa: S301 - from our own parent

    def ask(self, *question: Any) -> Any:
        """The parent's answer, or what it raised. Without a parent this process and its programs end here."""
        try:
            self.send(question)
            kind, answer = self.receive()
        except (OSError, EOFError):
            os.killpg(0, signal.SIGKILL)
        if kind == FAILED:
            raise told(answer)
        return answer


class ChildContext(Context):
    """`ctx` in a child process. A job that is to stop is killed, so here `cancelled` is never True."""

    def __init__(self, order: Order, line: Line) -> None:
        self._order = order
        self._line = line
        self._ended = False

    def ask(self, *question: Any) -> Any:
        """The parent's answer. A thread that outlives its function gets StaleClaim."""
        with self._line.lock:
            if self._ended:
                raise StaleClaim(f"the function of job {self.job_id} has ended")
            return self._line.ask(*question)

    @property
    def job(self) -> Job:
        """The job with what this attempt has reported so far."""
        return self.ask("job")  # type: ignore[no-any-return]

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._order.job_id

    @property
    def attempt(self) -> int:
        """Which attempt this is; 1 is the first."""
        return self._order.attempt

    @property
    def cancelled(self) -> bool:
        """Always False: a job that is to stop is killed with its process."""
        return False

    @property
    def stop_reason(self) -> str | None:
        """Always None, likewise."""
        return None

    def progress(self, percent: float, message: str = "") -> Written:
        """Report progress from 0 to 100; it never falls."""
        return _Reported(self, self.ask("progress", float(percent), str(message)))

    def stage(self, name: str) -> Written:
        """Enter a stage, such as `decoding`."""
        return _Reported(self, self.ask("stage", str(name)))

    def log(self, message: str, *, level: str = "info", **fields: Any) -> Written:
        """Keep a line with the job's events; the worker writes it to its log."""
        return _Reported(self, self.ask("log", str(message), level, encode(fields)))

    def step(self, name: str) -> Step:
        """A part of the work whose result is kept, so that a later attempt need not do it again."""
        return _ChildStep(name, self)

    def enqueue(self, task: MakesJobs, /, *args: Any, **kwargs: Any) -> str:
        """Ask for another job, created in the same transaction as this one's success; its id."""
        return self.ask("enqueue", task.new_job(*args, **kwargs))  # type: ignore[no-any-return]

    @cached_property
    def workspace(self) -> Path:
        """A folder of this attempt alone, removed when it ends however it ends."""
        return Path(self.ask("workspace"))

    @cached_property
    def children(self) -> Children:
        """Programs that end with this attempt: `ctx.children.popen("ffmpeg", …)`."""
        return _Programs()

    def raise_if_cancelled(self) -> None:
        """Nothing to do: see `cancelled`."""

    def close(self) -> None:
        """End what was started through `children`; ask nothing more."""
        with self._line.lock:
            self._ended = True
        children: Children | None = self.__dict__.pop("children", None)
        if children is not None:
            children.kill()


class _Reported(Written):
    __slots__ = ("_context", "_number")

    def __init__(self, context: ChildContext, number: int) -> None:
        self._context = context
        self._number = number

    def __await__(self) -> Generator[None, None, None]:
        self.wait()
        yield from ()

    def wait(self, timeout_s: float | None = None) -> None:
        self._context.ask("wait", self._number, timeout_s)


class _ChildStep(Step):
    def __init__(self, name: str, context: ChildContext) -> None:
        self.name = name
        self.done = False
        self.result: Any = None
        self._context = context

    def __enter__(self) -> Self:
        self._recall(self._context.ask("recall", self.name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.done:
            self._context.ask("keep", self.name, encode(self.result, limit_bytes=STEP_LIMIT_BYTES))
            self.done = True

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


class _Programs(Children):
    """Programs in the child's own process group, so that they die with it."""

    def __init__(self) -> None:
        self._programs: list[subprocess.Popen[Any]] = []

    async def start(self, program: str, *args: str, **options: Any) -> NoReturn:
        raise InvalidInput("children.start is for async functions; in a process use children.popen")

    def popen(self, *command: str, **options: Any) -> subprocess.Popen[Any]:
        process = subprocess.Popen(command, **options)  # noqa: S603 - the task's own program
        self._programs.append(process)
        return process

    def kill(self) -> None:
        for process in self._programs:
            process.kill()  # does nothing to one that has ended
            process.wait()


def main(connected: socket.socket) -> None:
    """Serve the parent until it hangs up."""
    _settle_in()
    line = Line(connected)
    with contextlib.suppress(EOFError, OSError):
        while True:
            line.send(_outcome(line.receive(), line))


def _outcome(order: Order, line: Line) -> tuple[str, Any]:
    context = ChildContext(order, line)
    try:
        definition = _definition(order.module, order.qualname, order.name)
        given = (context,) if definition.takes_context else ()
        value = definition.function(*given, **definition.arguments(order.payload))
        return DONE, definition.write_result(value)
    except SystemExit as error:
        _exit(error.code)
    except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome
        return FAILED, tell(error)
    finally:
        context.close()
        _flush()


def _settle_in() -> None:
    """A group of our own, which the parent can kill; deaf to a terminal's Ctrl-C; not to outlive the parent."""
    os.setsid()
    for number in STOPS:
        signal.signal(number, _not_ours)  # not SIG_IGN: programs would inherit it, and could not be terminated
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    os.register_at_fork(after_in_child=_usual_signals)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)


def _not_ours(number: int, frame: FrameType | None) -> None:
    """The parent decides when we end."""


def _usual_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _exit(code: object) -> NoReturn:
    """What sys.exit() asks for, at once: threads that go on must not hold it up."""
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    _flush()
    os._exit((code or 0) & 0xFF)
