"""The identity of a remote worker: its token, which rotates while the worker runs, and its id at the server.

A worker exchanges an enrolment token for a worker token, which is rotated at three quarters of its life. A token file
keeps the current token for the next start, and for other processes of the same worker: one rotates, the others read.

A worker that lost its token (its file is gone, it has expired, somebody used a copy) enrols again if its options have
an enrolment token too, at most once in five minutes; a deliberate revocation ends the worker.
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

from .caller import ServerAway, ServerRefused, WorkerRefused
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


class StoredToken(NamedTuple):
    """The content of a token file. The id is empty if a person wrote the token into the file."""

    token: str
    worker_id: str = ""
    rotate_after_s: float | None = None


class Credentials:
    """The token and id of one worker. Two threads read this object; only the worker's event loop changes it."""

    def __init__(self, options: RemoteOptions, worker_id: str) -> None:
        self.worker_id = worker_id
        self._options = options
        self._file = options.token_file
        self._looked_at = 0 if self._file is None else _changed_at(self._file)
        self._name = worker_id
        self._enrolment = options.token if options.token.startswith(ENROLMENT) else ""
        self._given_up = ""  # the token that was not taken any more, and is still in the file
        self._given_up_at: float | None = None
        first_token = self._first()
        self.token = first_token.token
        if first_token.worker_id:
            self.worker_id = first_token.worker_id
        self.is_introduced = False
        self._rotate_after_s: float | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.worker_id})"

    def _first(self) -> StoredToken:
        """Return the initial token, from the file or from the options. Raises InvalidInput for an unreadable file."""
        if self._file is None or (self._enrolment and not self._file.exists()):
            return StoredToken(self._options.token)
        return _read(self._file)

    async def begin(self, caller: Caller) -> None:
        """Rotate or enrol, so that the worker can claim jobs; raises WorkerRefused, or ServerAway to retry later."""
        async with self._alone():
            self._look()
            if self.token.startswith(WORKER):
                await self._rotate_or_give_up(caller)
            if self.token.startswith(ENROLMENT):
                await self._enrol(caller)
        self.is_introduced = True

    @property
    def is_enrolled(self) -> bool:
        """True for a worker token, False for an enrolment token or an API key."""
        return self.token.startswith(WORKER)

    def give_up(self, refusal: ServerRefused) -> bool:
        """Replace a refused worker token by the enrolment token, for `begin` to enrol again; return whether allowed."""
        now = time.monotonic()
        too_soon = self._given_up_at is not None and now - self._given_up_at < ENROL_EACH_S
        if not (self._enrolment and refusal.may_enrol and self.token.startswith(WORKER)) or too_soon:
            return False
        log.warning("%s; this worker enrols again", refusal)
        self._given_up, self.token, self._given_up_at = self.token, self._enrolment, now
        self.is_introduced, self._rotate_after_s = False, None
        return True

    async def keep_fresh(self, caller: Caller) -> None:
        """Rotate the worker token before its expiry, repeatedly; returns at once for a plain API key."""
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
        """Read the token file again if its modification time has changed."""
        if self._file is not None and _changed_at(self._file) != self._looked_at:
            self._look()

    async def changed_since(self, token: str) -> bool:
        """Read the token file; return whether the current token differs from `token`."""
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
        """Send an empty heartbeat to check the server and the API key; raises WorkerRefused or ServerAway."""
        try:
            await caller.call("heartbeats", {"leases": []})
        except ServerRefused as refused:
            if refused.ends_worker:
                message = f"the server does not want this worker: {refused.detail} ({refused.code})"
                raise WorkerRefused(message) from refused

    def _take(self, answer: dict[str, Any]) -> None:
        """Store a new token, in the file before its first use: the previous token becomes invalid on that use."""
        try:
            new_token = StoredToken(
                str(answer["worker_token"]), str(answer["worker_id"]), float(answer["rotate_after_seconds"])
            )
        except (KeyError, TypeError, ValueError):
            raise ServerAway("the server's answer holds no token") from None
        if self._file is not None:
            _write(self._file, new_token)
        self.token, self.worker_id, self._rotate_after_s = new_token

    def _look(self) -> bool:
        """Read the token file and adopt a new token; return whether the token changed."""
        if self._file is None:
            return False
        self._looked_at = _changed_at(self._file)
        try:
            stored_token = _read(self._file)
        except InvalidInput:
            return False  # it is just being replaced, or was removed: what we have is good
        if stored_token.token in (self.token, self._given_up):
            return False
        self.token, self.worker_id = stored_token.token, stored_token.worker_id or self.worker_id
        self._rotate_after_s = stored_token.rotate_after_s or self._rotate_after_s
        return True

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Lock the token file against other processes; raises InvalidInput if the lock file cannot be created."""
        if self._file is None:
            yield
            return
        try:
            lock = self._file.with_name(f"{self._file.name}.lock").open("w")
        except OSError as error:
            message = f"no file can be made beside {self._file}: {os.strerror(error.errno or 0)}"
            raise InvalidInput(f"{message}; the worker keeps its new token there") from None
        with lock:
            while not _try_lock(lock.fileno()):  # noqa: ASYNC110 - another process holds it
                await asyncio.sleep(LOCK_S)
            yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _changed_at(path: Path) -> int:
    """Return a file's modification time in nanoseconds; 0 for a missing file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _read(path: Path) -> StoredToken:
    """Parse a token file; raises InvalidInput."""
    try:
        text = path.read_text("utf-8").strip()
    except OSError as error:
        raise InvalidInput(f"the token file {path} cannot be read: {os.strerror(error.errno or 0)}") from None
    if text.startswith("{"):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            fields = json.loads(text)
            return StoredToken(str(fields["token"]), str(fields["worker_id"]), float(fields["rotate_after_s"]))
        text = ""
    if not text or not (text.isascii() and text.isprintable()) or " " in text:
        raise InvalidInput(f"the token file {path} holds no token; write the token into it, and nothing else")
    return StoredToken(text)


def _write(path: Path, stored_token: StoredToken) -> None:
    """Write the token file atomically, readable by this user only."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
        json.dump(stored_token._asdict(), new)
        new.flush()
        os.fsync(new.fileno())
    Path(new.name).replace(path)
