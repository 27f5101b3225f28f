"""Enrolled workers: an enrolment token, used up, becomes a worker with a token that lives shortly and is rotated.

The store holds keyed hashes of the tokens, in documents: one for each enrolment, one for each worker, and one for each
worker's last sign of life, so that signs of life and new tokens never meet in one write.

A token that was rotated is good until its successor is used for the first time, and for two minutes at most: the answer
with the new one may have been lost. Whoever uses it later has a copy of it, so all tokens of that worker are revoked.
That worker may enrol anew; one that was revoked on purpose may not, by the same enrolment under the same name.
"""

from __future__ import annotations

import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from callsheet.kernel.errors import CallsheetError, DocumentConflict
from callsheet.store.protocol import Document

from .keys import FIND, Principal, found_by, is_well_formed, keyed_hash, new_key, new_letters
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

__all__ = ["LIFE_S", "WORKER_HEAD", "Enrolment", "Token", "Worker", "WorkerEvent", "Workers"]
log = logging.getLogger("callsheet.http")
ENROLMENT, WORKER, SEEN = "enrolment", "worker", "worker_seen"
ENROLMENT_HEAD, WORKER_HEAD = "cs_enroll_", "cs_worker_"
OVERLAP_MS = 120_000  # the token before is good for so long: the answer with the new one may have been lost
IN_FLIGHT_MS = 2_000  # a request with the old token may be on its way while the new one is used: refused, and no more
REMEMBERED = 50  # rotated tokens of a worker whose use is noticed: a day and a half of them
REUSED = "token_reused"
KEPT_S = 3.0
SEEN_S = 10.0
FORGOTTEN_MS = 7 * 86_400_000
REMEMBERED_MS = 31 * 86_400_000  # longer than any enrolment is good
ON_PURPOSE = "revoked_on_purpose"
RACES = 20
MOST_KEPT = 10_000


class Workers:
    """The workers of a store. Answers of the store are believed for KEPT_S: so long a revoked worker may go on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[float, Principal]] = {}
        self._noted: dict[str, float] = {}
        self.listeners: list[Callable[[WorkerEvent], Awaitable[None]]] = []  # each is told of every event

    async def invite(
        self,
        *,
        queues: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
        ttl_s: float = 3600,
        uses: int = 1,
        token_life_s: int = LIFE_S,
    ) -> tuple[str, Enrolment]:
        """A new enrolment token; its text is told once and kept nowhere."""
        now, text = await self._store.now(), new_key(ENROLMENT_HEAD)
        made = Enrolment(
            found_by(text, ENROLMENT_HEAD),
            None if queues is None else tuple(queues),
            None if tenants is None else tuple(tenants),
            uses,
            token_life_s,
            now,
            now + round(ttl_s * 1000),
        )
        body = json.dumps({**made._asdict(), "hash": keyed_hash(text)})
        await self._store.put_document(Document(ENROLMENT, made.enrolment_id, body, 0))
        return text, made

    async def withdraw(self, enrolment_id: str) -> bool:
        """Take an enrolment back: nobody enrols with it from now on. False when there is none.

        Whoever is using it at this moment has a use, or is refused: a use is written to the document that goes here.
        """
        return await self._store.delete_document(ENROLMENT, enrolment_id)

    async def enrolments(self) -> list[Enrolment]:
        """The enrolments that a worker can still use, in the order of their making; the others are forgotten."""
        now, good = await self._store.now(), list[Enrolment]()
        for document in await self._store.documents(ENROLMENT):
            right = Enrolment(**fields_of(Enrolment._fields, json.loads(document.body)))
            if right.expires_at > now and right.uses_left > 0:
                good.append(right)
            else:
                await self._store.delete_document(ENROLMENT, document.id)
        return sorted(good, key=lambda right: (right.created_at, right.enrolment_id))

    async def enroll(self, text: str, name: str, labels: Sequence[str], version: str, protocol: int) -> Token:
        """Use an enrolment up, and be a worker; raises Problem `unauthorized`."""
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
        """A new token for a worker; the one before is good for a short while more. Raises Problem."""
        text, now = new_key(WORKER_HEAD, worker_id[-FIND:]), await self._store.now()

        def change(body: dict[str, Any]) -> None:
            ends = now + body["token_life_s"] * 1000
            old = [{**t, "expires_at": min(t["expires_at"], now + OVERLAP_MS)} for t in body["tokens"][-REMEMBERED:]]
            body["tokens"] = [*old, {"hash": keyed_hash(text), "expires_at": ends}]
            body["token_expires_at"] = ends

        return Token(text, await self._change(worker_id, change))

    async def revoke(self, worker_id: str) -> Worker:
        """End a worker for good; raises Problem `not_found`. Its leases run out."""
        now = await self._store.now()
        ends = {ON_PURPOSE: True}
        return await self._change(worker_id, lambda body: body.update(ends, revoked_at=body["revoked_at"] or now))

    async def drain(self, worker_id: str, *, drain: bool = True) -> Worker:
        """Let a worker finish what it has and take no more, or take that back; raises Problem `not_found`."""
        now = await self._store.now()
        return await self._change(worker_id, lambda body: body.update(draining_at=now if drain else None))

    async def is_revoked(self, worker_id: str) -> bool:
        """Whether an enrolled worker was revoked. One that has a plain API key never is."""
        for document in await self._store.documents(WORKER, worker_id[-FIND:]):
            worker = worker_from(json.loads(document.body))
            return worker.worker_id == worker_id and worker.revoked_at is not None
        return False

    async def list(self) -> list[Worker]:
        """Known workers, enrolled or not, by id; those of whom nothing was heard for a week are forgotten."""
        now, found = await self._store.now(), dict[str, Worker]()
        for document in await self._store.documents(WORKER):
            body = json.loads(document.body)
            worker = worker_from(body)
            if _forgotten_at(body) > now:
                found[worker.worker_id] = worker
            else:
                await self._store.delete_document(WORKER, document.id)
        for document in await self._store.documents(SEEN):
            sign = json.loads(document.body)
            if sign["at"] + FORGOTTEN_MS > now:
                known = found.get(document.id, Worker(document.id, document.id))
                found[document.id] = with_sign(known, sign)
            else:
                await self._store.delete_document(SEEN, document.id)
        return [found[worker_id] for worker_id in sorted(found)]

    async def principal(self, text: str) -> Principal:
        """Whose token this is; raises Problem `unauthorized`, or `worker_revoked` to a worker that was.

        The first use of a rotated token is noted, and the use of one before it then revokes the worker.
        """
        digest = keyed_hash(text)
        kept = self._known.get(digest)
        if kept is not None and time.monotonic() - kept[0] < KEPT_S:
            return kept[1]
        who = await self._look_up(text, digest)
        if len(self._known) >= MOST_KEPT:
            del self._known[next(iter(self._known))]
        self._known[digest] = (time.monotonic(), who)
        return who

    async def is_enrolled(self, worker_id: str) -> bool:
        """Whether a worker of this id is enrolled; believed for as long as a sign of life is."""
        if time.monotonic() - self._noted.get(worker_id, float("-inf")) < SEEN_S:
            return False  # what would be noted is not
        documents = await self._store.documents(WORKER, worker_id[-FIND:])
        return bool(documents) and json.loads(documents[0].body)["worker_id"] == worker_id

    async def seen(self, worker_id: str, labels: Sequence[str], version: str, running: int) -> None:
        """Note a sign of life, at most once in SEEN_S. Trouble with that is no trouble of the worker's."""
        if time.monotonic() - self._noted.get(worker_id, float("-inf")) < SEEN_S:
            return
        if len(self._noted) >= MOST_KEPT:
            del self._noted[next(iter(self._noted))]
        self._noted[worker_id] = time.monotonic()
        try:
            known = await self._store.documents(SEEN, worker_id)
            sign = {"at": await self._store.now(), "labels": list(labels), "version": version, "running": running}
            await self._store.put_document(
                Document(SEEN, worker_id, json.dumps(sign), known[0].version if known else 0)
            )
        except DocumentConflict:
            return  # another process has just noted it
        except CallsheetError as error:
            log.warning("a worker's sign of life was not noted: %s", error)

    async def _redeem(self, text: str) -> Enrolment:
        """Take one use of an enrolment; of many at once, no more than it has succeed. Raises Problem."""
        if is_well_formed(text, ENROLMENT_HEAD):
            for _ in range(RACES):
                documents = await self._store.documents(ENROLMENT, found_by(text, ENROLMENT_HEAD))
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
        """Raise Problem `worker_revoked` when a worker of this enrolment was revoked on purpose, whatever its name."""
        for document in await self._store.documents(WORKER):
            body = json.loads(document.body)
            if body.get(ON_PURPOSE) and body.get("enrolment_id") == enrolment_id:
                raise _revoked(body)

    async def _look_up(self, text: str, digest: str) -> Principal:
        documents = (
            await self._store.documents(WORKER, found_by(text, WORKER_HEAD))
            if is_well_formed(text, WORKER_HEAD)
            else []
        )
        now = await self._store.now() if documents else 0
        body: dict[str, Any] = json.loads(documents[0].body) if documents else {"tokens": []}
        place = next((n for n, t in enumerate(body["tokens"]) if hmac.compare_digest(digest, t["hash"])), None)
        if place is None:
            raise _unknown()
        if body["revoked_at"] is not None:
            raise _revoked(body)
        if (used_at := _used_after(body["tokens"], place)) is not None:
            raise await self._reused(body, used_at, now)
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
        """The worker has its new token: from now on the one before proves nothing but a theft."""

        def change(body: dict[str, Any]) -> None:
            for token in body["tokens"]:
                if token["hash"] == digest:
                    token.setdefault("used_at", now)

        await self._change(worker_id, change)

    async def _reused(self, body: dict[str, Any], used_at: int, now: int) -> Problem:
        """A token was shown after its successor was used: what is said, once the worker is revoked."""
        if now - used_at < IN_FLIGHT_MS:
            return Problem("unauthorized", "this worker token was replaced by a newer one, which is in use; send that")

        def change(body: dict[str, Any]) -> None:
            body.update(revoked_at=body["revoked_at"] or now, token_reused_at=body.get("token_reused_at") or now)

        worker = await self._change(body["worker_id"], change)
        detail = "a token was used after it had been rotated: somebody has a copy of it; the worker must enrol anew"
        log.warning("worker %s is revoked: %s", worker.worker_id, detail)
        await self._tell(WorkerEvent(REUSED, worker.worker_id, worker.tenants, now, detail))
        return _revoked({**body, "token_reused_at": now})

    async def _tell(self, event: WorkerEvent) -> None:
        """Tell all who listen; one that cannot hear now changes nothing of what has happened."""
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
            self._known.clear()
            return worker_from(body)
        raise DocumentConflict(f"worker {worker_id} changed {RACES} times while it was being changed; try again")


def _used_after(tokens: Sequence[dict[str, Any]], place: int) -> int | None:
    """When a token that is newer than the one at this place was first used; None when none was."""
    return min((token["used_at"] for token in tokens[place + 1 :] if "used_at" in token), default=None)


def _unknown() -> Problem:
    return Problem("unauthorized", "this worker token is not known, or not any more; enrol again")


def _revoked(body: dict[str, Any]) -> Problem:
    """What is said to a worker that was revoked; `may_enrol` where nobody has done that on purpose."""
    told = "this worker was revoked; end your work and upload nothing"
    may_enrol = body.get("token_reused_at") is not None and not body.get(ON_PURPOSE)
    return Problem("worker_revoked", told, revoked=True, drain=True, may_enrol=may_enrol)


def _forgotten_at(body: dict[str, Any]) -> int:
    """When a worker's document goes; of one that was revoked on purpose not while its enrolment may be good."""
    kept_until = int(body.get("token_expires_at") or 0) + FORGOTTEN_MS
    return max(kept_until, body["revoked_at"] + REMEMBERED_MS) if body.get(ON_PURPOSE) else kept_until
