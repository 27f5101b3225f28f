"""Enrolled workers: a worker exchanges an enrolment token for a short-lived worker token, which is rotated.

The store holds keyed hashes of tokens in separate documents: one per enrolment, one per worker, and one per worker's
last sign of life, so that signs of life and new tokens never conflict.

A rotated token stays valid until its successor's first use, at most two minutes: the response with the successor may
have been lost. A later use proves that somebody copied the token, so all tokens of that worker are revoked. Such a
worker may enrol again; after a worker was revoked on purpose, its enrolment is refused, whatever the new worker's name.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from callsheet.kernel.errors import CallsheetError, DocumentConflict
from callsheet.store.protocol import Document

from .buckets import RecentCache
from .keys import FIND, Principal, is_well_formed, keyed_hash, lookup_id, new_key, new_letters
from .problems import Problem
from .worker_records import (
    LIFE_S,
    Enrolment,
    Token,
    Worker,
    WorkerEvent,
    body_of,
    fields_of,
    with_sign,
    worker_from,
)

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

__all__ = ["LIFE_S", "WORKER_HEAD", "Enrolment", "Token", "Worker", "WorkerEvent", "WorkerRegistry"]
log = logging.getLogger("callsheet.http")
ENROLMENT, WORKER, SEEN = "enrolment", "worker", "worker_seen"
ENROLMENT_HEAD, WORKER_HEAD = "cs_enroll_", "cs_worker_"
OVERLAP_MS = 120_000  # a rotated token stays valid this long: the response with its successor may be lost
IN_FLIGHT_MS = 2_000  # an old token used this soon after the new one is refused without revoking the worker
REMEMBERED_TOKENS = 50  # rotated tokens whose reuse is detected: a day and a half of them
REUSE_EVENT = "token_reused"
KEPT_S = 3.0
SEEN_S = 10.0
FORGOTTEN_MS = 7 * 86_400_000
REMEMBERED_MS = 31 * 86_400_000  # longer than any enrolment is valid
ON_PURPOSE = "revoked_on_purpose"
RACES = 20


class WorkerRegistry:
    """The workers of a store. Store lookups are cached for KEPT_S seconds; so long a revoked worker may continue."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._principals: RecentCache[Principal] = RecentCache()
        self._recently_seen: RecentCache[bool] = RecentCache()
        self.listeners: list[Callable[[WorkerEvent], Awaitable[None]]] = []  # called with every event

    async def invite(
        self,
        *,
        queues: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
        ttl_s: float = 3600,
        uses: int = 1,
        token_life_s: int = LIFE_S,
    ) -> tuple[str, Enrolment]:
        """Create an enrolment. Returns its token's text, which is stored nowhere, and its record."""
        now, text = await self._store.now(), new_key(ENROLMENT_HEAD)
        enrolment = Enrolment(
            lookup_id(text, ENROLMENT_HEAD),
            None if queues is None else tuple(queues),
            None if tenants is None else tuple(tenants),
            uses,
            token_life_s,
            now,
            now + round(ttl_s * 1000),
        )
        body = json.dumps({**enrolment._asdict(), "hash": keyed_hash(text)})
        await self._store.put_document(Document(ENROLMENT, enrolment.enrolment_id, body, 0))
        return text, enrolment

    async def withdraw(self, enrolment_id: str) -> bool:
        """Delete an enrolment, so that no worker can enrol with its token. Returns False if no such enrolment exists.

        A concurrent enrolment either succeeds first or is refused: each use is written to the deleted document.
        """
        return await self._store.delete_document(ENROLMENT, enrolment_id)

    async def enrolments(self) -> list[Enrolment]:
        """Return the usable enrolments, oldest first, and delete expired and exhausted ones."""
        now, good = await self._store.now(), list[Enrolment]()
        for document in await self._store.documents(ENROLMENT):
            right = Enrolment(**fields_of(Enrolment._fields, json.loads(document.body)))
            if right.expires_at > now and right.uses_left > 0:
                good.append(right)
            else:
                await self._store.delete_document(ENROLMENT, document.id)
        return sorted(good, key=lambda right: (right.created_at, right.enrolment_id))

    async def enroll(self, text: str, name: str, labels: Sequence[str], version: str, protocol: int) -> Token:
        """Take one use of an enrolment and create a worker.

        Returns the worker's token; raises Problem `unauthorized`.
        """
        right = await self._redeem(text)
        now, letters = await self._store.now(), new_letters(FIND)
        token = new_key(WORKER_HEAD, letters)
        worker = Worker(
            f"{name}-{letters}",
            name,
            right.queues,
            right.tenants,
            tuple(labels),
            version,
            protocol,
            right.token_life_s,
            now,
            now + right.token_life_s * 1000,
        )
        tokens = [{"hash": keyed_hash(token), "expires_at": worker.token_expires_at}]
        body = {**body_of(worker), "enrolment_id": right.enrolment_id, "tokens": tokens}
        await self._store.put_document(Document(WORKER, letters, json.dumps(body), 0))
        return Token(token, worker)

    async def rotate(self, worker_id: str) -> Token:
        """Return a new token for a worker; the previous token stays valid for up to two minutes. Raises Problem."""
        text, now = new_key(WORKER_HEAD, worker_id[-FIND:]), await self._store.now()

        def change(body: dict[str, Any]) -> None:
            ends = now + body["token_life_s"] * 1000
            old = [
                {**t, "expires_at": min(t["expires_at"], now + OVERLAP_MS)} for t in body["tokens"][-REMEMBERED_TOKENS:]
            ]
            body["tokens"] = [*old, {"hash": keyed_hash(text), "expires_at": ends}]
            body["token_expires_at"] = ends

        return Token(text, await self._change(worker_id, change))

    async def revoke(self, worker_id: str) -> Worker:
        """Revoke a worker permanently; its leases expire. Raises Problem `not_found`."""
        now = await self._store.now()
        ends = {ON_PURPOSE: True}
        return await self._change(worker_id, lambda body: body.update(ends, revoked_at=body["revoked_at"] or now))

    async def drain(self, worker_id: str, *, drain: bool = True) -> Worker:
        """Stop a worker from claiming new jobs, or allow claims again; raises Problem `not_found`."""
        now = await self._store.now()
        return await self._change(worker_id, lambda body: body.update(draining_at=now if drain else None))

    async def is_revoked(self, worker_id: str) -> bool:
        """Return whether an enrolled worker was revoked; False for a worker with a plain API key."""
        for document in await self._store.documents(WORKER, worker_id[-FIND:]):
            worker = worker_from(json.loads(document.body))
            return worker.worker_id == worker_id and worker.revoked_at is not None
        return False

    async def list(self) -> list[Worker]:
        """Return all known workers by id, enrolled or not. Workers silent for a week are deleted."""
        now, workers = await self._store.now(), dict[str, Worker]()
        for document in await self._store.documents(WORKER):
            body = json.loads(document.body)
            worker = worker_from(body)
            if _forgotten_at(body) > now:
                workers[worker.worker_id] = worker
            else:
                await self._store.delete_document(WORKER, document.id)
        for document in await self._store.documents(SEEN):
            sign = json.loads(document.body)
            if sign["at"] + FORGOTTEN_MS > now:
                enrolled_worker = workers.get(document.id, Worker(document.id, document.id))
                workers[document.id] = with_sign(enrolled_worker, sign)
            else:
                await self._store.delete_document(SEEN, document.id)
        return [workers[worker_id] for worker_id in sorted(workers)]

    async def principal(self, text: str) -> Principal:
        """Return the Principal of a worker token; raises Problem `unauthorized`, or `worker_revoked` if it is revoked.

        The first use of a rotated token is recorded; a later use of an older token then revokes the worker.
        """
        digest = keyed_hash(text)
        who = self._principals.get(digest, KEPT_S)
        if who is None:
            who = await self._look_up(text, digest)
            self._principals.put(digest, who)
        return who

    async def is_enrolled(self, worker_id: str) -> bool:
        """Return whether an enrolled worker has this id; False while `record_seen` would skip the worker anyway."""
        if self._recently_seen.get(worker_id, SEEN_S):
            return False
        documents = await self._store.documents(WORKER, worker_id[-FIND:])
        return bool(documents) and json.loads(documents[0].body)["worker_id"] == worker_id

    async def record_seen(self, worker_id: str, labels: Sequence[str], version: str, running: int) -> None:
        """Record a worker's sign of life, at most once per SEEN_S. Store errors are logged, not raised."""
        if self._recently_seen.get(worker_id, SEEN_S):
            return
        self._recently_seen.put(worker_id, value=True)
        try:
            documents = await self._store.documents(SEEN, worker_id)
            sign = {"at": await self._store.now(), "labels": list(labels), "version": version, "running": running}
            await self._store.put_document(
                Document(SEEN, worker_id, json.dumps(sign), documents[0].version if documents else 0)
            )
        except DocumentConflict:
            return  # another process has just recorded it
        except CallsheetError as error:
            log.warning("a worker's sign of life was not noted: %s", error)

    async def _redeem(self, text: str) -> Enrolment:
        """Take one use of an enrolment and return its record; raises Problem.

        Concurrent calls never take more uses than the enrolment has.
        """
        if is_well_formed(text, ENROLMENT_HEAD):
            for _ in range(RACES):
                documents = await self._store.documents(ENROLMENT, lookup_id(text, ENROLMENT_HEAD))
                body: dict[str, Any] = json.loads(documents[0].body) if documents else {"hash": ""}
                if not hmac.compare_digest(keyed_hash(text), body["hash"]):
                    break
                if body["expires_at"] <= await self._store.now() or body["uses_left"] < 1:
                    await self._store.delete_document(ENROLMENT, documents[0].id)
                    break
                await self._check_wanted(body["enrolment_id"])
                body["uses_left"] -= 1
                try:
                    await self._store.put_document(documents[0]._replace(body=json.dumps(body)))
                except DocumentConflict:
                    continue
                return Enrolment(**fields_of(Enrolment._fields, body))
        raise Problem("unauthorized", "this enrolment token is unknown, used up or too old; ask an admin for a new one")

    async def _check_wanted(self, enrolment_id: str) -> None:
        """Raise Problem `worker_revoked` if a worker of this enrolment was revoked on purpose, whatever its name."""
        for document in await self._store.documents(WORKER):
            body = json.loads(document.body)
            if body.get(ON_PURPOSE) and body.get("enrolment_id") == enrolment_id:
                raise _revoked_problem(body)

    async def _look_up(self, text: str, digest: str) -> Principal:
        documents = (
            await self._store.documents(WORKER, lookup_id(text, WORKER_HEAD))
            if is_well_formed(text, WORKER_HEAD)
            else []
        )
        now = await self._store.now() if documents else 0
        body: dict[str, Any] = json.loads(documents[0].body) if documents else {"tokens": []}
        place = next((n for n, t in enumerate(body["tokens"]) if hmac.compare_digest(digest, t["hash"])), None)
        if place is None:
            raise _unknown()
        if body["revoked_at"] is not None:
            raise _revoked_problem(body)
        if (used_at := _used_after(body["tokens"], place)) is not None:
            raise await self._handle_reuse(body, used_at, now)
        if body["tokens"][place]["expires_at"] <= now:
            raise _unknown()
        if place and "used_at" not in body["tokens"][place]:
            await self._note_use(body["worker_id"], digest, now)
        return Principal(
            body["worker_id"],
            "",
            frozenset({"worker"}),
            worker_id=body["worker_id"],
            queues=None if body["queues"] is None else frozenset(body["queues"]),
            tenants=None if body["tenants"] is None else frozenset(body["tenants"]),
            draining=body["draining_at"] is not None,
        )

    async def _note_use(self, worker_id: str, digest: str, now: int) -> None:
        """Record the first use of a rotated token: a later use of an older token proves a theft."""

        def change(body: dict[str, Any]) -> None:
            for token in body["tokens"]:
                if token["hash"] == digest:
                    token.setdefault("used_at", now)

        await self._change(worker_id, change)

    async def _handle_reuse(self, body: dict[str, Any], used_at: int, now: int) -> Problem:
        """Revoke the worker of a token that was used after its successor, and return the Problem to raise.

        Within IN_FLIGHT_MS of the successor's first use, the token is only refused.
        """
        if now - used_at < IN_FLIGHT_MS:
            return Problem("unauthorized", "this worker token was replaced by a newer one, which is in use; send that")

        def change(body: dict[str, Any]) -> None:
            body.update(revoked_at=body["revoked_at"] or now, token_reused_at=body.get("token_reused_at") or now)

        worker = await self._change(body["worker_id"], change)
        detail = "a token was used after it had been rotated: somebody has a copy of it; the worker must enrol anew"
        log.warning("worker %s is revoked: %s", worker.worker_id, detail)
        await self._tell(WorkerEvent(REUSE_EVENT, worker.worker_id, worker.tenants, now, detail))
        return _revoked_problem({**body, "token_reused_at": now})

    async def _tell(self, event: WorkerEvent) -> None:
        """Notify all listeners of an event. Errors of listeners are logged, not raised."""
        for listener in self.listeners:
            try:
                await listener(event)
            except CallsheetError as error:
                log.warning("%s of worker %s was not recorded: %s", event.name, event.worker_id, error)

    async def _change(self, worker_id: str, change: Callable[[dict[str, Any]], None]) -> Worker:
        for _ in range(RACES):
            documents = await self._store.documents(WORKER, worker_id[-FIND:])
            body = json.loads(documents[0].body) if documents else {"worker_id": ""}
            if body["worker_id"] != worker_id:
                raise Problem("not_found", f"no enrolled worker {worker_id!r}; GET /v1/workers lists them")
            change(body)
            try:
                await self._store.put_document(documents[0]._replace(body=json.dumps(body)))
            except DocumentConflict:
                continue
            self._principals.clear()
            return worker_from(body)
        raise DocumentConflict(f"worker {worker_id} changed {RACES} times while it was being changed; try again")


def _used_after(tokens: Sequence[dict[str, Any]], place: int) -> int | None:
    """Return when a token newer than `tokens[place]` was first used, or None."""
    return min((token["used_at"] for token in tokens[place + 1 :] if "used_at" in token), default=None)


def _unknown() -> Problem:
    return Problem("unauthorized", "this worker token is not known, or not any more; enrol again")


def _revoked_problem(body: dict[str, Any]) -> Problem:
    """Return Problem `worker_revoked`. `may_enrol` is true if a reused token alone caused the revocation."""
    detail = "this worker was revoked; end your work and upload nothing"
    may_enrol = body.get("token_reused_at") is not None and not body.get(ON_PURPOSE)
    return Problem("worker_revoked", detail, revoked=True, drain=True, may_enrol=may_enrol)


def _forgotten_at(body: dict[str, Any]) -> int:
    """Return the time at which a worker's document may be deleted.

    Documents of workers revoked on purpose are kept longer than any enrolment is valid.
    """
    kept_until = int(body.get("token_expires_at") or 0) + FORGOTTEN_MS
    return max(kept_until, body["revoked_at"] + REMEMBERED_MS) if body.get(ON_PURPOSE) else kept_until
