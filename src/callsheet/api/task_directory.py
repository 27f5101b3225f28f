"""The tasks that this server knows, read from the store's register, and the check of arguments by their schemas."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import jsonschema_rs

from callsheet.engine.task_register import TaskRecord, near_names, task_records, visible_to
from callsheet.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from callsheet.http.keys import Principal
    from callsheet.store.protocol import Store

FRESH_S = 5.0  # how long a list of tasks is used
MISSING_S = 0.25  # an unknown task is looked for in the store again, at most this often
MAX_FAULTS = 20
LINEAR = jsonschema_rs.RegexOptions()  # patterns come from workers: none of them may stall the server


class _Entry(NamedTuple):
    """A registered task and the validator of its arguments, None if it has no usable schema."""

    record: TaskRecord
    validator: jsonschema_rs.Validator | None


class TaskDirectory:
    """The registered tasks, cached for a few seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._read_at = float("-inf")

    async def visible(self, who: Principal) -> list[TaskRecord]:
        """Return the tasks that the caller may call, ordered by name."""
        await self._refresh(MISSING_S)
        return visible_to([entry.record for entry in self._entries.values()], who.sees)

    async def record(self, who: Principal, name: str) -> TaskRecord | None:
        """Return a task that the caller may call, its tenant's own before a shared one; None if there is none."""
        entry = await self._entry(who, name)
        return entry.record if entry else None

    async def check_payload(self, who: Principal, name: str, payload: object) -> TaskRecord:
        """Return the record of a task whose schema the payload fits.

        Raises Problem `unknown_task` with the names that are near, or `invalid_payload` with the faults by field.
        """
        entry = await self._entry(who, name)
        if entry is None:
            raise _unknown(name, await self.visible(who))
        if entry.validator is not None:
            _check(entry.validator, name, payload)
        return entry.record

    async def _entry(self, who: Principal, name: str) -> _Entry | None:
        await self._refresh(FRESH_S)
        entry = self._find(who, name)
        if entry is None:
            await self._refresh(MISSING_S)
            entry = self._find(who, name)
        return entry

    def _find(self, who: Principal, name: str) -> _Entry | None:
        return self._entries.get((who.requester_id, name)) or self._entries.get(("", name))

    async def _refresh(self, older_than_s: float) -> None:
        if time.monotonic() - self._read_at < older_than_s:
            return
        records = await task_records(self._store)
        before = self._entries
        self._entries = {(r.tenant, r.name): _entry(r, before.get((r.tenant, r.name))) for r in records}
        self._read_at = time.monotonic()


def _entry(record: TaskRecord, before: _Entry | None) -> _Entry:
    if before is not None and before.record.arguments == record.arguments:
        return _Entry(record, before.validator)
    return _Entry(record, _validator(record.arguments))


def _validator(schema: Mapping[str, Any] | None) -> jsonschema_rs.Validator | None:
    """Return a validator that reads nothing from outside; None for a schema that cannot be used."""
    if schema is None:
        return None
    try:
        return jsonschema_rs.validator_for(
            dict(schema), retriever=_no_retrieval, pattern_options=LINEAR, mask="the value"
        )
    except (ValueError, jsonschema_rs.ReferencingError):
        return None


def _no_retrieval(uri: str) -> Any:
    raise ValueError(f"{uri} is outside of the schema")


def _check(validator: jsonschema_rs.Validator, name: str, payload: object) -> None:
    faults = []
    for error in validator.iter_errors(payload):
        faults.append({"where": ".".join(["payload", *map(str, error.instance_path)]), "what": error.message})
        if len(faults) == MAX_FAULTS:
            break
    if faults:
        detail = "; ".join(f"{fault['where']}: {fault['what']}" for fault in faults[:5])
        raise Problem("invalid_payload", f"{name}: {detail}", errors=faults)


def _unknown(name: str, records: list[TaskRecord]) -> Problem:
    near = near_names(name, records)
    advice = f"did you mean {' or '.join(near)}?" if near else "start a worker that serves it, or send unchecked: true"
    text = f"no worker has registered {name}; {advice}"
    return Problem("unknown_task", f"task: {text}", near=near, errors=[{"where": "task", "what": text}])
