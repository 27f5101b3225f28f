"""Who a remote worker is: a token that changes while it works, and the id that the server knows it by.

An enrolment token is exchanged for a worker's own, which is rotated at three quarters of its life. In a token file the
present one is kept for the next start, and for other processes of the same worker: one rotates, the others read.

A worker whose own token is lost (its file is gone, it has expired, somebody used a copy of it) enrols again where an
enrolment token is given beside, now and then at most; one that was revoked on purpose does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.kernel.errors import InvalidInput

from .answers import ServerAway, ServerRefused, WorkerRefused
from .options import ENROLMENT, VERSION

if TYPE_CHECKING:
    from .caller import Caller
    from .options import RemoteOptions

log = logging.getLogger("callsheet.worker")
WORKER = "cs_worker_"
LOOK_S = 15.0  # how often the file is looked at: another process may have rotated
LOCK_S = 0.05
ENROL_EACH_S = 300.0  # no more often than this: each time costs a use of the enrolment
UNSURE = re.compile(r"[^A-Za-z0-9._-]+")
NAME_LENGTH = 80


class Known(NamedTuple):
    """What a token file holds. Without an id it is the text that a person has put there."""

    token: str
    worker_id: str = ""
    rotate_after_s: float | None = None


class Credentials:
    """Read by two threads; only the worker's event loop changes it."""

    def __init__(self, options: RemoteOptions, worker_id: str) -> None:
        self.worker_id = worker_id
        self._options = options
        self._file = options.token_file
        self._looked_at = 0 if self._file is None else _changed_at(self._file)
        self._name = worker_id
        self._enrolment = options.token if options.token.startswith(ENROLMENT) else ""
        self._given_up = ""  # the token that was not taken any more, and is still in the file
        self._given_up_at: float | None = None
        known = self._first()
        self.token = known.token
        if known.worker_id:
            self.worker_id = known.worker_id
        self.introduced = False
        self._rotate_after_s: float | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.worker_id})"

    def _first(self) -> Known:
        """What it begins with: what is in the file, else an enrolment token. Raises InvalidInput without either."""
        if self._file is None or (self._enrolment and not self._file.exists()):
            return Known(self._options.token)
        return _read(self._file)

    async def begin(self, caller: Caller) -> None:
        """Become a worker that can ask for jobs; raises WorkerRefused, or ServerAway when that may be tried again."""
        async with self._alone():
            self._look()
            if self.token.startswith(WORKER):
                await self._rotate_or_give_up(caller)
            if self.token.startswith(ENROLMENT):
                await self._enrol(caller)
        self.introduced = True

    @property
    def is_enrolled(self) -> bool:
        """Whether it has a token of its own; else it has a plain key."""
        return self.token.startswith(WORKER)

    def give_up(self, refused: ServerRefused) -> bool:
        """Whether it may enrol again, as it then does when it begins: its token is not taken, and it has another."""
        now = time.monotonic()
        too_soon = self._given_up_at is not None and now - self._given_up_at < ENROL_EACH_S
        if not (self._enrolment and refused.may_enrol and self.token.startswith(WORKER)) or too_soon:
            return False
        log.warning("%s; this worker enrols again", refused)
        self._given_up, self.token, self._given_up_at = self.token, self._enrolment, now
        self.introduced, self._rotate_after_s = False, None
        return True

    async def keep_fresh(self, caller: Caller) -> None:
        """Rotate in time, for ever; a plain API key stays as it is."""
        while self._rotate_after_s is not None:
            left_s = self._rotate_after_s
            while left_s > 0:
                step_s = min(LOOK_S, left_s) if self._file is not None else left_s
                await asyncio.sleep(step_s)
                left_s = self._rotate_after_s if await self.changed_since(self.token) else left_s - step_s
            try:
                async with self._alone():
                    if not self._look():
                        await self._rotate(caller)
            except ServerAway as away:
                log.warning("the worker's token could not be rotated, trying again: %s", away)
                await asyncio.sleep(LOOK_S)
            except WorkerRefused as refused:
                log.error("%s", refused)  # noqa: TRY400 - the next claim ends the worker
                return

    def refresh(self) -> None:
        """Take over what another process has put into the file since it was last read; one look at its time."""
        if self._file is not None and _changed_at(self._file) != self._looked_at:
            self._look()

    async def changed_since(self, token: str) -> bool:
        """Whether there is another token by now, here or in the file."""
        if self._file is not None:
            self._look()
        return self.token != token

    async def _enrol(self, caller: Caller) -> None:
        name = UNSURE.sub("-", self._name).strip("-._")[:NAME_LENGTH] or "worker"
        token, self.token = self.token, ""
        body = {"enrolment_token": token, "worker_name": name, "labels": list(self._options.labels)}
        try:
            self._take(await caller.call("enroll", {**body, "version": VERSION}))
        except ServerAway:
            self.token = token
            raise
        except ServerRefused as refused:
            raise WorkerRefused(f"this worker could not enrol: {refused.detail} ({refused.code})") from refused
        log.info("enrolled as %s", self.worker_id)

    async def _rotate(self, caller: Caller) -> None:
        try:
            self._take(await caller.call("token", {}))
        except ServerRefused as refused:
            raise WorkerRefused(f"the server does not take this token: {refused.detail} ({refused.code})") from refused
        log.debug("the worker's token was rotated")

    async def _rotate_or_give_up(self, caller: Caller) -> None:
        try:
            await self._rotate(caller)
        except WorkerRefused as refused:
            if not isinstance(refused.__cause__, ServerRefused) or not self.give_up(refused.__cause__):
                raise

    async def show(self, caller: Caller) -> None:
        """Ask for nothing, so that a server that is away or does not take a plain key is known; raises as `begin`."""
        try:
            await caller.call("heartbeats", {"leases": []})
        except ServerRefused as refused:
            if refused.ends_worker:
                told = f"the server does not want this worker: {refused.detail} ({refused.code})"
                raise WorkerRefused(told) from refused

    def _take(self, answer: dict[str, Any]) -> None:
        """Keep a new token. It is in the file before it is used: the one before is worth nothing from then on."""
        try:
            known = Known(str(answer["worker_token"]), str(answer["worker_id"]), float(answer["rotate_after_seconds"]))
        except (KeyError, TypeError, ValueError):
            raise ServerAway("the server's answer holds no token") from None
        if self._file is not None:
            _write(self._file, known)
        self.token, self.worker_id, self._rotate_after_s = known

    def _look(self) -> bool:
        """Take over what another process has put into the file; whether there was something."""
        if self._file is None:
            return False
        self._looked_at = _changed_at(self._file)
        try:
            known = _read(self._file)
        except InvalidInput:
            return False  # it is just being replaced, or was removed: what we have is good
        if known.token in (self.token, self._given_up):
            return False
        self.token, self.worker_id = known.token, known.worker_id or self.worker_id
        self._rotate_after_s = known.rotate_after_s or self._rotate_after_s
        return True

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """One process at a time changes the file; raises InvalidInput where none can."""
        if self._file is None:
            yield
            return
        try:
            lock = self._file.with_name(f"{self._file.name}.lock").open("w")
        except OSError as error:
            told = f"no file can be made beside {self._file}: {os.strerror(error.errno or 0)}"
            raise InvalidInput(f"{told}; the worker keeps its new token there") from None
        with lock:
            while not _locked(lock.fileno()):  # noqa: ASYNC110 - another process holds it
                await asyncio.sleep(LOCK_S)
            yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _changed_at(path: Path) -> int:
    """When a file was last written, in its clock's nanoseconds; 0 when it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _read(path: Path) -> Known:
    """What a file holds; raises InvalidInput."""
    try:
        text = path.read_text("utf-8").strip()
    except OSError as error:
        raise InvalidInput(f"the token file {path} cannot be read: {os.strerror(error.errno or 0)}") from None
    if text.startswith("{"):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = json.loads(text)
            return Known(str(found["token"]), str(found["worker_id"]), float(found["rotate_after_s"]))
        text = ""
    if not text or not (text.isascii() and text.isprintable()) or " " in text:
        raise InvalidInput(f"the token file {path} holds no token; write the token into it, and nothing else")
    return Known(text)


def _write(path: Path, known: Known) -> None:
    """Whole or not at all, and for this user's eyes only."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
        json.dump(known._asdict(), new)
        new.flush()
        os.fsync(new.fileno())
    Path(new.name).replace(path)
