"""The child process of `executor="process"`: runs one function after another, and gives each function a `ctx`.

Orders, questions and answers are frames on one socket: pickled builtins and the kernel's own records. The child sends
one question at a time and waits for the parent's answer, so that an error is raised by the call that caused it.
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
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from callsheet.engine.resuming import Steps
from callsheet.kernel import errors
from callsheet.kernel.apply import after_settlement
from callsheet.kernel.errors import InvalidInput, StaleClaim
from callsheet.kernel.job import Job
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.wire import encode

from . import signals
from .children import Children
from .context import Context
from .current import RUN, count_worker, tasks_run_here
from .definition import Definition
from .outages import outage_of
from .plane import JobSource
from .run import PendingWrite, Run, SettlementSink
from .signals import Fatal
from .steps import Step

if TYPE_CHECKING:
    from callsheet.objects import OwnedObjects

HEAD = struct.Struct("!I")
RESULT, ERROR, ANSWER = "done", "failed", "answer"
STOPS = frozenset({signal.SIGINT, signal.SIGTERM})
PR_SET_PDEATHSIG = 1
TRACE_LIMIT = 8_000
OURS = (errors.__name__, signals.__name__)
FIELDS = ("after_ms", "after_s", "delay_ms", "code", "waits_for")


class Order(NamedTuple):
    """The parent's order to run one attempt: the function's module and name, and the job."""

    module: str
    qualname: str
    name: str
    job: Job


class ChildError(Exception):
    """Base of exceptions from a child process; each has its original class name, and its traceback as a note."""


class ErrorWords(NamedTuple):
    """An exception serialized for the other process. `base` is its nearest base class in Callsheet's own modules."""

    name: str
    module: str
    base: type[Exception]
    message: str
    trace: str
    fields: dict[str, Any]


def pack_frame(message: tuple[Any, ...]) -> bytes:
    """Serialize a message as one frame."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return HEAD.pack(len(data)) + data


def error_words(error: BaseException) -> ErrorWords:
    """Serialize an exception, with the traceback from the user's function on."""
    if (outage := outage_of(error)) is not None:
        error = outage.with_traceback(error.__traceback__)
    kind, trace = type(error), error.__traceback__
    base = next((ancestor for ancestor in kind.__mro__ if ancestor.__module__ in OURS), ChildError)
    text = "".join(traceback.format_exception(kind, error, trace and (trace.tb_next or trace)))[-TRACE_LIMIT:]
    fields = {name: value for name, value in vars(error).items() if name in FIELDS}
    if isinstance(error, errors.Outage):
        fields |= {"code": error.code, "waits_for": error.waits_for}
    return ErrorWords(kind.__name__, kind.__module__, base, str(error), text, fields)


def error_of(words: ErrorWords) -> Exception:
    """Rebuild the other process's exception: Callsheet's own classes unchanged, others as a new class of equal name."""
    kind = words.base
    if (kind.__module__, kind.__name__) != (words.module, words.name):
        kind = type(words.name, (kind,), {"__module__": words.module})
    error = kind.__new__(kind, words.message)
    vars(error).update(words.fields)
    error.add_note(f"In the child process:\n{words.trace}")
    return error


def resolve(module: Any, qualname: str) -> Any:
    """Return a module's function by its qualified name, unwrapping a task. Raises AttributeError."""
    value = module
    for part in qualname.split("."):
        value = getattr(value, part)
    return value.function if isinstance(getattr(value, "definition", None), Definition) else value


class Line:
    """The child's end of the socket. `lock` is held from a question to its answer."""

    def __init__(self, connection: socket.socket) -> None:
        self.lock = threading.RLock()
        self._socket = connection
        self._input = connection.makefile("rb")

    def send(self, frame: bytes) -> None:
        """Write one frame; blocks while the socket's buffer is full."""
        self._socket.sendall(frame)

    def receive(self) -> Any:
        """Read one frame; raises EOFError after the parent closed the socket."""
        head = self._input.read(HEAD.size)
        if len(head) < HEAD.size:
            raise EOFError
        return pickle.loads(self._input.read(*HEAD.unpack(head)))  # noqa: S301 - from our own parent

    def exchange(self, frame: bytes) -> Any:
        """Send a frame and return the answer. Any error, even an interrupt, kills this process and its programs."""
        try:
            self.send(frame)
            return self.receive()
        except BaseException:  # noqa: BLE001 - even a user's alarm: half a frame would be read as the next answer
            os.killpg(0, signal.SIGKILL)


class _ChildRun(Run):
    """A run that sends its writes to the parent process."""

    def __init__(self, job: Job, line: Line) -> None:
        super().__init__(job, None, cast("SettlementSink", None), float("inf"))
        self.line = line

    def report(self, command: Callable[[Job], Settlement]) -> PendingWrite:
        with self.line.lock:
            settlement = command(self.job)
            number = self.ask("report", settlement)
            self.job = after_settlement(self.job, settlement, self.job.event_ms)
        return _Reported(self, number)

    def ask(self, *question: Any) -> Any:
        """Ask the parent and return its answer; raises the parent's error, or StaleClaim after the function ended."""
        with self.line.lock:
            if self.is_settled:
                raise StaleClaim(f"the function of job {self.job_id} has ended")
            kind, answer = self.line.exchange(pack_frame(question))
        if kind == ERROR:
            raise error_of(answer)
        return answer


class _Reported(PendingWrite):
    __slots__ = ("_number", "_run")

    def __init__(self, run: _ChildRun, number: int) -> None:
        self._run = run
        self._number = number

    def __await__(self) -> Generator[None, None, None]:
        self.wait()
        yield from ()

    def wait(self, timeout_s: float | None = None) -> None:
        self._run.ask("wait", self._number, timeout_s)


class ChildContext(Context):
    """`ctx` in a child process. Stopping a job kills its child process, so `cancelled` is never True here."""

    _run: _ChildRun
    app: Any = None

    @cached_property
    def objects(self) -> OwnedObjects:
        """The app's objects as this job may use them; `app.sync(ctx.objects.get(key))` waits for an answer."""
        if self.app is None:
            raise InvalidInput(f"the app of task {self.job.kind} is not known in a child process; declare it as a task")
        resolve: OwnedObjects = self.app.objects_of(self.job)
        return resolve

    def log(self, message: str, *, level: str = "info", **fields: Any) -> PendingWrite:
        """Add a log line to the job's events; the parent's worker writes the line to its log too."""
        return _Reported(self._run, self._run.ask("log", str(message), level, encode(fields)))

    def step(self, name: str) -> Step:
        """Return a step, whose stored result lets a later attempt skip that part of the work."""
        return _ChildStep(name, self._run, self._engine)

    async def steps(self) -> Steps:
        """Return the results of completed steps by name, as JSON, and the ids of their jobs."""
        resolve: Steps = self._run.ask("recall")
        return resolve

    @cached_property
    def workspace(self) -> Path:
        """A private folder of this attempt, removed after success, failure or crash."""
        return Path(self._run.ask("workspace"))

    @cached_property
    def children(self) -> Children:
        """Programs that end with this attempt: `ctx.children.popen("ffmpeg", …)`."""
        return _Programs(self._run)

    def close(self) -> None:
        """Kill the programs started through `children`, and send no more questions to the parent."""
        with self._run.line.lock:
            self._run.is_settled = True
        children: Children | None = self.__dict__.pop("children", None)
        if children is not None:
            children.kill()


class _ChildStep(Step):
    _run: _ChildRun

    def __enter__(self) -> Self:
        self._recall(self._run.ask("recall").results)
        return self

    async def __aenter__(self) -> Self:
        return self.__enter__()


class _Programs(Children):
    """Programs in the child's own process group, so that killing the group kills them too."""

    def popen(self, *command: str, **options: Any) -> subprocess.Popen[Any]:
        self._programs.append(process := subprocess.Popen(command, **options))  # noqa: S603 - the task's own program
        return process

    @cached_property
    def _programs(self) -> list[subprocess.Popen[Any]]:
        return []

    def kill(self) -> None:
        super().kill()
        for process in self._programs:
            process.kill()  # does nothing to one that has ended
            process.wait()


def main(connection: socket.socket) -> None:
    """Run the parent's orders until it closes the socket."""
    _settle_in()
    line = Line(connection)
    with contextlib.suppress(EOFError, OSError):
        while True:
            line.send(pack_frame(_outcome(line.receive(), line)))


def _outcome(order: Order, line: Line) -> tuple[Any, ...]:
    if not tasks_run_here():
        count_worker(1)  # for good: a thread of an earlier job may still be there
    run = _ChildRun(order.job, line)
    context = ChildContext(run, cast("JobSource", None))  # whatever needs the engine asks the parent
    token = RUN.set(run)
    try:
        definition = _definition(order.module, order.qualname, order.name)
        context.app = _app(order.module, order.qualname)
        leading = (context,) if definition.takes_context else ()
        value = definition.function(*leading, **definition.arguments(order.job.payload))
        return RESULT, definition.write_result(value), run.follow_ups
    except SystemExit as error:  # at once: threads that go on must not hold it up
        _flush()
        os._exit(error.code & 0xFF if isinstance(error.code, int) else error.code is not None)
    except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome
        return ERROR, error_words(error)
    finally:
        RUN.reset(token)
        context.close()
        _flush()


@lru_cache(maxsize=1024)
def _definition(module: str, qualname: str, name: str) -> Definition:
    home = importlib.import_module(module)
    try:
        function = resolve(home, qualname)
    except AttributeError:
        message = f"task {name}: {module}.{qualname} is not there when a child process imports the module"
        raise Fatal(f"{message}; declare it at module level, under no condition", code="invalid_task") from None
    return Definition(name, function, executor="process")


def _app(module: str, qualname: str) -> Any:
    """Return the app of the named task; None for a plain function."""
    value: Any = importlib.import_module(module)
    for part in qualname.split("."):
        value = getattr(value, part, None)
    return getattr(value, "app", None)


def _settle_in() -> None:
    """Set up this process: own process group, ignored SIGINT and SIGTERM, and (on Linux) death with the parent."""
    os.setsid()
    for number in STOPS:
        signal.signal(number, lambda *_: None)  # SIG_IGN would be inherited by programs, which could not be terminated
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    os.register_at_fork(after_in_child=_usual_signals)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)


def _usual_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
