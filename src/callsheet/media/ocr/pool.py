"""The OCR child processes: one per core, each in the sandbox, reused for many frames, replaced on death."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from asyncio.subprocess import Process
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from callsheet.media.errors import InputTooLarge, LimitReached, MediaError, TookTooLong
from callsheet.sandbox.command import GB, KEEPS_MEMORY, MB, Limits, Sight, environment, of_python
from callsheet.sandbox.processes import Program, Start, import_folders, kill, output_of, send, start_alone, tail_of

from .child import ANSWER, QUESTION
from .engines import KINDS, check, engine_module
from .errors import EngineMissing, NotAPicture, OcrCrashed, OcrError
from .records import Box, FrameText, Reading, Region, Word

# 2 GB are address space, of which a Tesseract uses a tenth
LIMITS = Limits(cpu_s=7 * 24 * 3600, memory_bytes=2 * GB, file_bytes=MB, free_bytes=0)
SILENCE = Path(os.devnull)  # tesserocr opens it for Tesseract's prints, and crashes without access
ONE_THREAD = {"OMP_THREAD_LIMIT": "1", "OPENBLAS_NUM_THREADS": "1"}
START_S = 60.0
LEAVE_S = 2.0
CODE = "import sys; sys.path += sys.argv[5:]; from callsheet.media.ocr.child import main; main(*sys.argv[1:5])"
ERRORS: dict[str, type[MediaError]] = {
    kind.code: kind for kind in (EngineMissing, NotAPicture, InputTooLarge, LimitReached)
}


class Pool:
    """Reads frames with one child per core. An async context manager; its exit kills all children."""

    def __init__(self, options: Reading, start: Start = start_alone) -> None:
        check(options)
        self._options = options
        self._how = f"{'+'.join(options.languages)}{' thorough' if options.thorough else ''}"
        self._start = start
        self.size = options.processes or cores()
        self._children: set[Child] = set()
        self._idle: asyncio.LifoQueue[Child | None] = asyncio.LifoQueue()  # None: a child that must be started first
        for _ in range(self.size):
            self._idle.put_nowait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.kill()
        await asyncio.gather(*(child.wait() for child in self._children))
        self._children.clear()

    async def read(self, picture: bytes, *, thorough: bool = False) -> FrameText:
        """Read one frame as soon as a child is free. Raises OcrCrashed, NotAPicture, TookTooLong and others."""
        child = await self._idle.get()
        try:
            if child is None or not child.alive:
                child = await self._new_child(child)
            answer = await child.ask(picture, self._options.frame_s, thorough=thorough or self._options.thorough)
        except BaseException:  # the child may be in the middle of a frame
            if child is not None:
                await asyncio.shield(self._lose(child))
            self._idle.put_nowait(None)
            raise
        self._idle.put_nowait(child)
        return FrameText(_regions(_raise_child_error(answer)), f"{child.engine} {self._how}", retried=False)

    def pids(self) -> list[int]:
        """Return the process ids of the current children."""
        return [child.pid for child in self._children]

    async def _new_child(self, dead_child: Child | None) -> Child:
        if dead_child is not None:
            await self._lose(dead_child)
        child = await Child.start(self._options, self._start)
        self._children.add(child)
        return child

    async def _lose(self, child: Child) -> None:
        child.kill()
        await child.wait()
        self._children.discard(child)


class Child:
    """One OCR child process with its pipes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid
        self.engine = ""
        assert process.stderr is not None  # noqa: S101 - all three are pipes
        self._stderr_tail = asyncio.create_task(tail_of(process.stderr))

    @classmethod
    async def start(cls, options: Reading, start: Start) -> Child:
        """Start a child and wait until its engine has loaded. Raises EngineMissing."""
        child = cls(await _program(options).start(start))
        try:
            async with asyncio.timeout(START_S):
                child.engine = f"{options.engine} {_raise_child_error(await child._answer())['engine']}"
        except BaseException as error:
            child.kill()
            stderr_tail = await child.wait()
            if isinstance(error, OcrCrashed | TimeoutError):
                raise EngineMissing(f"{options.engine} does not start: {stderr_tail or error}") from None
            raise
        return child

    @property
    def alive(self) -> bool:
        """Whether the child process still runs, as far as asyncio knows."""
        return self._process.returncode is None

    async def ask(self, picture: bytes, patience_s: float, *, thorough: bool) -> dict[str, Any]:
        """Return the child's answer or error message. Callers must kill the child after an exception."""
        try:
            async with asyncio.timeout(patience_s):
                await send(self._process, QUESTION.pack(len(picture), thorough) + picture)
                return await self._answer()
        except TimeoutError:
            raise TookTooLong(f"reading one frame took longer than {patience_s:g} s") from None

    async def _answer(self) -> dict[str, Any]:
        pipe = output_of(self._process)
        try:
            (size,) = ANSWER.unpack(await pipe.readexactly(ANSWER.size))
            answer: dict[str, Any] = json.loads(await pipe.readexactly(size))
        except (OSError, asyncio.IncompleteReadError):
            with contextlib.suppress(TimeoutError):  # so that the exit code is the child's own, not that of our kill
                async with asyncio.timeout(LEAVE_S):
                    await self._process.wait()
            self.kill()
            last = (await self.wait()).rpartition("\n")[2]
            how = _how(self._process.returncode)
            raise OcrCrashed(f"the engine {how} while it read a frame{last and ': '}{last}") from None
        return answer

    def kill(self) -> None:
        """Kill the child with SIGKILL; no cleanup is necessary."""
        kill(self._process)

    async def wait(self) -> str:
        """Wait for the child's end; return the tail of its stderr."""
        await self._process.wait()
        return (await self._stderr_tail).strip()[-300:]


def cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _raise_child_error(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise ERRORS.get(answer["error"], OcrError)(answer["text"])
    return answer


def _regions(answer: dict[str, Any]) -> tuple[Region, ...]:
    return tuple(
        Region(text, Box(*box), confidence, language, tuple(Word(word[0], Box(*word[1]), *word[2:]) for word in words))
        for text, box, confidence, language, words in answer["regions"]
    )


def _program(options: Reading) -> Program:
    data = engine_module(options.engine).data_for(options.languages)
    try:
        folders = import_folders(*KINDS[options.engine].needs)
    except ModuleNotFoundError as error:
        raise EngineMissing(
            f"{options.engine} needs the package {error.name}; pip install 'callsheet[media]'"
        ) from None
    command = [sys.executable, "-I", "-S", "-B", "-c", CODE, options.engine, "+".join(options.languages)]
    command += [str(options.min_confidence), str(data or ""), *map(str, folders)]
    readable = (*folders, *of_python(), *([data, data.resolve()] if data is not None else []))
    env = environment(Path(tempfile.gettempdir())) | ONE_THREAD | KEEPS_MEMORY
    return Program(command, Sight(read=readable, write=(SILENCE,)), LIMITS, env)


def _how(code: int | None) -> str:
    return f"died of signal {-code}" if code is not None and code < 0 else f"left with code {code}"
