"""The children that read: one per core, each inside the box, kept from frame to frame and replaced when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from callsheet.media.errors import InputTooLarge, LimitReached, MediaError, TookTooLong
from callsheet.media.process import Start, start_alone, tail_of
from callsheet.media.sandbox import GB, KEEPS_MEMORY, MB, Limits, Sight, environment, of_python, sandboxed_command

from .child import ANSWER, QUESTION
from .engines import KINDS, check, installed
from .errors import EngineMissing, NotAPicture, OcrCrashed, OcrError
from .records import Box, FrameText, Reading, Region, Word

# 2 GB are address space, of which a Tesseract uses a tenth
LIMITS = Limits(cpu_s=7 * 24 * 3600, memory_bytes=2 * GB, file_bytes=MB, free_bytes=0)
SILENCE = Path(os.devnull)  # tesserocr has Tesseract print to it, and it crashes where it may not
ONE_THREAD = {"OMP_THREAD_LIMIT": "1", "OPENBLAS_NUM_THREADS": "1"}
START_S = 60.0
LEAVE_S = 2.0
CODE = "import sys; sys.path += sys.argv[5:]; from callsheet.media.ocr.child import main; main(*sys.argv[1:5])"
ERRORS: dict[str, type[MediaError]] = {
    kind.code: kind for kind in (EngineMissing, NotAPicture, InputTooLarge, LimitReached)
}


class Pool:
    """Reads frames with as many children as there are cores. `async with`; all of them are gone at its end."""

    def __init__(self, options: Reading, start: Start = start_alone) -> None:
        check(options)
        self._options = options
        self._how = f"{'+'.join(options.languages)}{' thorough' if options.thorough else ''}"
        self._start = start
        self.size = options.processes or cores()
        self._children: set[Child] = set()
        self._idle: asyncio.LifoQueue[Child | None] = asyncio.LifoQueue()  # None: one that is to be started
        for _ in range(self.size):
            self._idle.put_nowait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.kill()
        await asyncio.gather(*(child.gone() for child in self._children))
        self._children.clear()

    async def read(self, picture: bytes, *, thorough: bool = False) -> FrameText:
        """The text of one frame, as soon as a child is free; raises OcrCrashed, NotAPicture, TookTooLong and others."""
        child = await self._idle.get()
        try:
            if child is None or not child.alive:
                child = await self._another(child)
            answer = await child.ask(picture, self._options.frame_s, thorough=thorough or self._options.thorough)
        except BaseException:  # it may be in the middle of a frame
            if child is not None:
                await asyncio.shield(self._lose(child))
            self._idle.put_nowait(None)
            raise
        self._idle.put_nowait(child)
        return FrameText(_regions(_checked(answer)), f"{child.engine} {self._how}", retried=False)

    def pids(self) -> list[int]:
        """Of the children that are there now."""
        return [child.pid for child in self._children]

    async def _another(self, dead: Child | None) -> Child:
        if dead is not None:
            await self._lose(dead)
        child = await Child.started(self._options, self._start)
        self._children.add(child)
        return child

    async def _lose(self, child: Child) -> None:
        child.kill()
        await child.gone()
        self._children.discard(child)


class Child:
    """One process and the pipes to it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid
        self.engine = ""
        assert process.stderr is not None  # noqa: S101 - all three are pipes
        self._said = asyncio.create_task(tail_of(process.stderr))

    @classmethod
    async def started(cls, options: Reading, start: Start) -> Child:
        """A child that has loaded its engine; raises EngineMissing."""
        line = _command(options)
        env = environment(Path(tempfile.gettempdir())) | ONE_THREAD | KEEPS_MEMORY
        child = cls(await start(line[0], *line[1:], stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd="/", env=env))
        try:
            async with asyncio.timeout(START_S):
                child.engine = f"{options.engine} {_checked(await child._answer())['engine']}"
        except BaseException as error:
            child.kill()
            said = await child.gone()
            if isinstance(error, OcrCrashed | TimeoutError):
                raise EngineMissing(f"{options.engine} does not start: {said or error}") from None
            raise
        return child

    @property
    def alive(self) -> bool:
        """It has not been seen to end."""
        return self._process.returncode is None

    async def ask(self, picture: bytes, patience_s: float, *, thorough: bool) -> dict[str, Any]:
        """What it answers, an error perhaps; afterwards it can be asked again, unless this raised."""
        try:
            async with asyncio.timeout(patience_s):
                return await self._asked(picture, thorough=thorough)
        except TimeoutError:
            raise TookTooLong(f"reading one frame took longer than {patience_s:g} s") from None

    async def _asked(self, picture: bytes, *, thorough: bool) -> dict[str, Any]:
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101
        with contextlib.suppress(OSError):  # that it has died shows in the answer
            pipe.write(QUESTION.pack(len(picture), thorough))
            pipe.write(picture)
            await pipe.drain()
        return await self._answer()

    async def _answer(self) -> dict[str, Any]:
        pipe = self._process.stdout
        assert pipe is not None  # noqa: S101
        try:
            (size,) = ANSWER.unpack(await pipe.readexactly(ANSWER.size))
            answer: dict[str, Any] = json.loads(await pipe.readexactly(size))
        except (OSError, asyncio.IncompleteReadError):
            with contextlib.suppress(TimeoutError):  # so that the code is its own, and not that of the kill
                async with asyncio.timeout(LEAVE_S):
                    await self._process.wait()
            self.kill()
            last = (await self.gone()).rpartition("\n")[2]
            how = _how(self._process.returncode)
            raise OcrCrashed(f"the engine {how} while it read a frame{last and ': '}{last}") from None
        return answer

    def kill(self) -> None:
        """SIGKILL it; it has nothing to clean up."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def gone(self) -> str:
        """Wait for its end; the last that it said."""
        await self._process.wait()
        return (await self._said).strip()[-300:]


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    """Raises what went wrong in the child."""
    if "error" in answer:
        raise ERRORS.get(answer["error"], OcrError)(answer["text"])
    return answer


def _regions(answer: dict[str, Any]) -> tuple[Region, ...]:
    return tuple(
        Region(text, Box(*box), confidence, language, tuple(Word(word[0], Box(*word[1]), *word[2:]) for word in words))
        for text, box, confidence, language, words in answer["regions"]
    )


def _command(options: Reading) -> list[str]:
    data = installed(options.engine).data_for(options.languages)
    packages = _packages(options.engine)
    command = [sys.executable, "-I", "-S", "-B", "-c", CODE, options.engine, "+".join(options.languages)]
    command += [str(options.min_confidence), str(data or ""), *map(str, packages)]
    seen = (*packages, *of_python(), *([data, data.resolve()] if data is not None else []))
    return sandboxed_command(command, Sight(read=seen, write=(SILENCE,)), LIMITS)


@cache
def _packages(engine: str) -> tuple[Path, ...]:
    """The folders that hold Callsheet and what the engine imports."""
    places = [Path(__file__).resolve().parents[3]]
    for name in KINDS[engine].needs:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise EngineMissing(f"{engine} needs the package {name}; pip install 'callsheet[media]'")
        places.append(Path(spec.origin).parents[1])
    return tuple(dict.fromkeys(places))


def _how(code: int | None) -> str:
    return f"died of signal {-code}" if code is not None and code < 0 else f"left with code {code}"
