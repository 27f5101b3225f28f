"""Plain functions in child processes, for CPU-bound work and for functions that must be killable.

This module holds the pool and the parent's end of the protocol; `child` holds the other end. A child leads a process
group, which is killed to stop its job; no child outlives this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

from callsheet.kernel.wire import decode

from .child import ANSWER, ERROR, HEAD, RESULT, STOPS, Order, error_of, error_words, main, pack_frame, resolve
from .signals import Fatal

if TYPE_CHECKING:
    from .context import Context
    from .definition import Definition
    from .run import PendingWrite, Run

SPAWN = multiprocessing.get_context("spawn")
LEAVE_S = 1.0


class ProcessDied(Exception):
    """A child process crashed, was killed, or exited before its function returned; the job may be retried."""


class Processes:
    """The child processes of one worker. Each child runs one job at a time, of any task; idle children are reused."""

    def __init__(self) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            message = "a worker was started while a child process imported this program"
            raise RuntimeError(f"{message}; start it under `if __name__ == '__main__':`")
        self._idle: list[Child] = []
        self._busy: dict[Run, Child] = {}
        self._checked_definitions: set[Definition] = set()
        self._processes: set[SpawnProcess] = set()
        Finalize(self, _kill_all, (self._processes,), exitpriority=10)  # before the one that would wait for them

    async def call(self, definition: Definition, context: Context, _arguments: dict[str, Any]) -> Any:
        """Run the function in a child process and return its result, decoded from JSON.

        Raises the function's exception, or ProcessDied. The child decodes the job's payload itself, so the arguments
        are not sent.
        """
        self._check(definition)
        run: Run = context._run  # noqa: SLF001 - ours
        child = self._busy[run] = self._take()
        if run.children is None:
            run.children = set()
        run.children.add(child.pid)  # so that a lost claim kills it from the heartbeat's thread
        function = definition.function
        order = Order(function.__module__, function.__qualname__, definition.name, run.job)
        try:
            text, run.follow_ups = await child.work(order, ContextServer(context, run))
            return decode(text)
        finally:
            run.children.discard(child.pid)
            del self._busy[run]
            if child.ready:
                self._idle.append(child)
            else:
                child.kill()

    def kill(self, run: Run) -> None:
        """Kill the child process of this run, and its whole process group."""
        if (child := self._busy.get(run)) is not None:
            child.kill()

    def close(self) -> None:
        """Stop the idle children; blocks for their exit, one second at most."""
        idle, self._idle = self._idle, []
        for child in idle:
            child.hang_up()
        until = time.monotonic() + LEAVE_S
        for child in idle:
            child.end(until)

    def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        self._processes -= {process for process in self._processes if not process.is_alive()}
        child = Child()
        self._processes.add(child.process)
        return child

    def _check(self, definition: Definition) -> None:
        """Raise Fatal for a function that a child process could not import by name."""
        if definition in self._checked_definitions:
            return
        function = definition.function
        module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
        try:
            ok = resolve(sys.modules.get(module), name) is function
        except AttributeError:
            ok = False
        if not ok:
            message = f"executor='process' needs a function at module level, and {module}.{name} is none"
            raise Fatal(f"task {definition.name}: {message}", code="invalid_task")
        self._checked_definitions.add(definition)


class Child:
    """One child process, with its socket and exit watch."""

    def __init__(self) -> None:
        """Start the process, on the event loop's thread: Linux kills a child together with its starting thread."""
        self.ready = False
        self._loop = asyncio.get_running_loop()
        self._socket, theirs = socket.socketpair()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._is_killed = False
        self.process = SPAWN.Process(target=main, args=(theirs,), name="callsheet-child", daemon=False)
        held = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until the child is deaf to them
        try:
            with theirs:
                self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        assert self.process.pid is not None  # noqa: S101 - it runs
        self.pid = self.process.pid
        self._exit: asyncio.Future[None] = self._loop.create_future()
        self._exit_fd = _watch(self.process)
        self._loop.add_reader(self._exit_fd, self._heard_of_exit)

    @property
    def alive(self) -> bool:
        """True if the child can take a job."""
        return not self._is_killed and not self._exit.done() and self.process.is_alive()

    async def work(self, order: Order, server: ContextServer) -> list[Any]:
        """Run one attempt; return its result as JSON and its follow-ups. Sets `ready` if the child can run another."""
        self.ready = False
        try:
            kind, *answer = await self._converse(order, server)
        except (OSError, asyncio.IncompleteReadError):
            self.kill()
            await self._exit
            raise ProcessDied(_how(order.name, self.process.exitcode)) from None
        self.ready = self.alive
        if kind == ERROR:
            raise error_of(*answer)
        return answer

    async def _converse(self, order: Order, server: ContextServer) -> tuple[Any, ...]:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(sock=self._socket)
        reader, writer = self._streams
        message: tuple[Any, ...] = order
        while True:
            writer.write(pack_frame(message))
            await writer.drain()
            (size,) = HEAD.unpack(await reader.readexactly(HEAD.size))
            answer: tuple[Any, ...] = pickle.loads(await reader.readexactly(size))  # noqa: S301 - from our own child
            if answer[0] in (RESULT, ERROR):
                return answer
            message = await server.answer(*answer)

    def kill(self) -> None:
        """SIGKILL the child and its process group; a starting child leads no group yet."""
        self._is_killed, self.ready = True, False
        if not self._exit.done():
            _kill(self.process)

    def hang_up(self) -> None:
        """Close the socket, so that the child exits."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self, until: float) -> None:
        """Wait until `until` for the child's exit, then kill the child."""
        self.process.join(max(0.0, until - time.monotonic()))
        if self.process.is_alive():
            self.kill()
        self._forget()

    def _heard_of_exit(self) -> None:
        """After the child's exit, kill the programs that still run in its process group."""
        _kill(self.process)
        self._forget()

    def _forget(self) -> None:
        if self._exit.done():
            return
        self._loop.remove_reader(self._exit_fd)
        if self._exit_fd != self.process.sentinel:
            os.close(self._exit_fd)
        self.process.join()
        self._exit.set_result(None)
        if self._streams is None:
            self._socket.close()
        else:
            self._streams[1].close()


class ContextServer:
    """Answers a child's questions about its job through the worker's context."""

    def __init__(self, context: Context, run: Run) -> None:
        self._context = context
        self._run = run
        self._reports = 0
        self._open: dict[int, asyncio.Future[Any]] = {}

    async def answer(self, *question: Any) -> tuple[str, Any]:
        """Return the reply to one question: an answer, or the serialized exception."""
        try:
            return ANSWER, await self._answer(question)
        except Exception as error:  # noqa: BLE001 - raised again in the child, where it was asked for
            return ERROR, error_words(error)

    async def _answer(self, question: tuple[Any, ...]) -> Any:
        match question:
            case "report", settlement:
                return self._register(self._run.report(lambda _: settlement))
            case "log", message, level, fields:
                return self._register(self._context.log(message, level=level, **decode(fields)))
            case "wait", number, timeout_s:
                return await self._wait(number, timeout_s)
            case ("recall",):
                return await self._context.steps()
            case ("workspace",):
                return str(self._context.workspace)
        raise TypeError(f"a child asked {question!r}")

    def _register(self, write: PendingWrite) -> int:
        """Return a number under which the child may wait for a report; a failed report stays until the job ends."""
        self._reports += 1
        number = self._reports
        self._open[number] = future = asyncio.ensure_future(write)
        future.add_done_callback(lambda done_write: self._close(number, done_write))
        return number

    def _close(self, number: int, done_write: asyncio.Future[Any]) -> None:
        if not done_write.cancelled() and done_write.exception() is None:
            del self._open[number]

    async def _wait(self, number: int, timeout_s: float | None) -> None:
        future = self._open.get(number)
        if future is not None and (await asyncio.wait({future}, timeout=timeout_s))[0]:
            future.result()


def _watch(process: SpawnProcess) -> int:
    """Return a descriptor that becomes readable on the process's exit. A fork of it could hold its sentinel open."""
    try:
        return os.pidfd_open(process.pid or -1)
    except (AttributeError, OSError):
        return process.sentinel


def _kill(process: SpawnProcess) -> None:
    assert process.pid  # noqa: S101 - a group 0 would be our own
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _kill_all(processes: set[SpawnProcess]) -> None:
    """Kill all children at this program's exit, as a last resort: the exit would wait for running children."""
    for process in processes:
        if process.is_alive():
            _kill(process)


def _how(name: str, code: int | None) -> str:
    how = f"with exit code {code}"
    if code is not None and code < 0:
        how = f"by signal {-code} ({signal.strsignal(-code)})"
    if code == -signal.SIGKILL:
        how += "; if nobody killed it, the machine may be short of memory"
    return f"the process of {name} ended without an answer, {how}"
