"""Writes the audit log of one server process.

`act` records an action that changes something; the response waits until the entry is stored. Refusals (401, 403) and
first uses of keys are written in the background, outside the request. Repeated refusals of one address or key cause at
most one entry per minute, with the number of refusals that the entry stands for.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from callsheet.kernel.audit import AuditEntry, new_entry
from callsheet.kernel.errors import DocumentConflict, StoreError
from callsheet.store.protocol import Document
from callsheet.store.tasks import end
from callsheet.vault.redact import redact

from .buckets import Buckets, RecentCache
from .problems import path_of
from .proxies import NOBODY

if TYPE_CHECKING:
    from starlette.requests import Request

    from callsheet.store.protocol import Store

    from .keys import Principal
    from .problems import Problem
    from .worker_records import WorkerEvent

log = logging.getLogger("callsheet.audit")
SEEN = "key_addresses"
FLUSH_S = 0.25
WINDOW_S = 60.0
MOST_WINDOWS = 100  # entries per minute that refusals can cause, however many addresses an attacker has
MOST_WAITING = 2_000
MOST_ADDRESSES = 100  # remembered per key
REFUSALS = {"unauthorized": "key.refused", "worker_revoked": "key.refused", "forbidden": "scope.denied"}


class Audit:
    """The audit log writer of one process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[AuditEntry] = deque()
        self._lost_count = 0
        self._windows: dict[str, _Window] = {}
        self._seen: RecentCache[bool] = RecentCache()
        self._uses: deque[tuple[str, AuditEntry]] = deque(maxlen=MOST_WAITING)
        self._budget = Buckets()
        self._task: asyncio.Task[None] | None = None
        self._flushing = asyncio.Lock()

    async def heard_of(self, event: WorkerEvent) -> None:
        """Append an entry about a worker's event."""
        owner = event.tenants[0] if event.tenants and len(event.tenants) == 1 else ""
        action = f"worker.{event.name}"
        await self.write(new_entry(action, requester_id=owner, actor=event.worker_id, target=event.worker_id))

    async def write(self, *entries: AuditEntry) -> None:
        """Append entries now. Raises StoreError; the caller must then not report the action as done."""
        await self._store.audit_append(entries)

    def note(self, entry: AuditEntry) -> None:
        """Queue an entry, which the background task writes soon together with others."""
        if len(self._waiting) >= MOST_WAITING:
            self._lost_count += 1
            return
        self._waiting.append(entry)
        self._run()

    def note_refusal(self, request: Request, problem: Problem) -> None:
        """Queue an entry for a request that this server answers with 401 or 403."""
        action = REFUSALS.get(problem.code)
        if action is None:
            return
        target = f"{request.method} {path_of(request.scope)}"
        if action == "key.refused" and target in ENTRANCES:
            action = ENTRANCES[target]
        if action is None:
            return
        entry = entry_of(request, action, outcome="refused", target=target, code=problem.code)
        name = f"{action} {entry.actor or network_of(entry.address)}"
        if name not in self._windows and len(self._windows) >= MOST_WINDOWS:
            name, entry = f"{action} others", entry._replace(address="", actor="", requester_id="", target="")
        window = self._windows.get(name)
        if window is None:
            self._windows[name] = _Window(entry)
            self.note(entry)
        else:
            window.more += 1

    def note_use(self, request: Request, who: Principal) -> None:
        """Queue an entry when a key is used from an address for the first time."""
        address = _address(request)
        name = f"{who.key_id} {address}"
        if self._seen.get(name) or self._budget.take(who.key_id, 1.0):
            return
        self._seen.put(name, value=True)
        self._uses.append((address, entry_of(request, "key.first_used", target=who.key_id)))
        self._run()

    async def flush(self, *, close: bool = False) -> None:
        """Write the queued entries. `close` also writes the counts of refusals whose minute has not passed."""
        async with self._flushing:
            await self._flush(close=close)

    async def _flush(self, *, close: bool) -> None:
        await self._look_at_uses()
        now = time.monotonic()
        for name in [name for name, window in self._windows.items() if close or now - window.since > WINDOW_S]:
            window = self._windows.pop(name)
            if window.more:
                self._waiting.append(_with_count(window.entry, window.more))
        if self._lost_count:
            log.warning("the audit log lost %d entries: the store did not take them in time", self._lost_count)
            self._lost_count = 0
        entries = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            await self._store.audit_append(entries)
        except StoreError as error:
            log.warning("the audit log waits for the store: %s", error)
            self._waiting.extendleft(reversed(entries[:MOST_WAITING]))

    async def close(self) -> None:
        """Stop the background task and write all remaining entries."""
        if self._task is not None:
            await end(self._task)
        await self.flush(close=True)

    def _run(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._flush_while_needed())

    async def _flush_while_needed(self) -> None:
        while self._waiting or self._uses or self._windows:
            await asyncio.sleep(FLUSH_S)
            try:
                await self.flush()
            except Exception:
                log.exception("the audit log could not be written")

    async def _look_at_uses(self) -> None:
        """Queue an entry for each key address that is new, by the addresses in the store, which all servers share."""
        while self._uses:
            address, entry = self._uses[0]
            try:
                if await self._is_new(entry.target, address):
                    self.note(entry)
            except StoreError as error:
                log.warning("the first use of a key waits for the store: %s", error)
                return
            self._uses.popleft()

    async def _is_new(self, key_id: str, address: str) -> bool:
        documents = await self._store.documents(SEEN, key_id)
        addresses: list[str] = json.loads(documents[0].body) if documents else []
        if address in addresses:
            return False
        body = json.dumps([*addresses, address][-MOST_ADDRESSES:])
        with contextlib.suppress(DocumentConflict):  # another server has just recorded an address
            await self._store.put_document(Document(SEEN, key_id, body, documents[0].version if documents else 0))
        return True


class _Window:
    """Refusals of one kind within a minute: the first is written immediately, the later ones are only counted."""

    def __init__(self, entry: AuditEntry) -> None:
        self.entry = entry
        self.since = time.monotonic()
        self.more = 0


ENTRANCES = {
    "GET /studio/session": None,  # the studio's page asks for the session before sign-in
    "POST /studio/session": "session.refused",
    "POST /internal/worker/enroll": "worker.refused",
}


async def act(
    request: Request, action: str, *, target: str = "", requester_id: str | None = None, **details: Any
) -> None:
    """Write an audit entry for the caller's action before the response is sent.

    `requester_id` is the tenant that the action concerns; the default is the caller's own tenant.
    """
    entry = entry_of(request, action, target=target, requester_id=requester_id, **details)
    await request.app.state.server_state.audit.write(entry)


def entry_of(request: Request, action: str, **fields: Any) -> AuditEntry:
    """Return an audit entry with the caller and the client's address. Unknown `fields` become details of the entry."""
    who: Principal | None = request.scope.get("callsheet.principal")
    requester_id = fields.pop("requester_id", None)
    own = {name: fields.pop(name) for name in ("target", "outcome") if name in fields}
    details = {name: redact(value) if isinstance(value, str) else value for name, value in fields.items()}
    if who is not None and who.admin:
        details["operator"] = True
    return new_entry(
        action,
        requester_id=(who.requester_id if who else "") if requester_id is None else requester_id,
        actor=who.key_id if who else "",
        target=redact(own.get("target", "")),
        outcome=own.get("outcome", "done"),
        address=_address(request),
        request_id=str(request.scope.get("callsheet.request_id", "")),
        details=details,
    )


def _address(request: Request) -> str:
    """Return the client's address, taken from trusted proxies' headers if trusted proxies are configured."""
    app, client = request.scope.get("app"), request.scope.get("client")
    if app is not None and app.state.server_state.proxies is not NOBODY:
        return str(app.state.server_state.proxies.client_of(request))
    return str(client[0]) if client else ""


def network_of(address: str) -> str:
    """Return the /64 network of an IPv6 address, which one customer owns; return any other address unchanged."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if ip.version == 4 else str(ipaddress.ip_network(f"{ip}/64", strict=False))  # noqa: PLR2004


def _with_count(entry: AuditEntry, more: int) -> AuditEntry:
    return entry._replace(details=json.dumps({**json.loads(entry.details), "more": more}))
