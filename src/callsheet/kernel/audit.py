"""The audit log's records: the security-relevant actions, and the fields of an entry. An entry never holds a secret."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from .errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .job import Json

ACTIONS = {
    "key.created": "An API key was made.",
    "key.revoked": "An API key was ended.",
    "key.first_used": "A key was used from an address for the first time.",
    "key.refused": "Requests with an unknown, revoked or expired key, or without one, from one address.",
    "scope.denied": "A key asked for something that its scopes do not allow.",
    "session.signed_in": "Somebody signed in to the studio.",
    "session.refused": "A sign-in failed.",
    "session.signed_out": "Somebody signed out.",
    "enrolment.created": "An invitation for workers was made.",
    "enrolment.withdrawn": "An invitation for workers was taken back.",
    "worker.enrolled": "A worker used an invitation.",
    "worker.refused": "Somebody tried to enrol with an invitation that is not good.",
    "worker.drained": "A worker was told to take no more jobs.",
    "worker.resumed": "A worker may take jobs again.",
    "worker.revoked": "A worker was ended for good.",
    "worker.token_reused": "A worker token was used after it had been replaced by a newer one.",
    "dead_letters.replayed": "Ended jobs were brought back.",
    "dead_letters.purged": "Ended jobs were deleted.",
    "operation.stopped": "An operation on many jobs was stopped.",
    "webhook.replayed": "Webhook deliveries were sent again.",
    "webhook.endpoint_created": "A webhook endpoint was made.",
    "webhook.endpoint_changed": "A webhook endpoint was changed, disabled or enabled.",
    "webhook.endpoint_deleted": "A webhook endpoint was deleted.",
    "webhook.secret_rotated": "A webhook endpoint got a new secret.",
    "video.deleted": "A video was deleted.",
    "vault.key_rotated": "The keyring got a new key.",
    "vault.rewrapped": "Stored credentials were wrapped with the newest key.",
    "quota.changed": "A tenant's quotas were set.",
    "quota.removed": "A tenant has the default quotas again.",
    "queue.paused": "A queue was paused.",
    "queue.resumed": "A queue goes on.",
}
OUTCOMES = ("done", "refused")
TEXTS = ("requester_id", "actor", "target", "outcome", "address", "request_id")
MASK = "(hidden)"
TEXT_LIMIT = 255
DETAILS_LIMIT = 20
_SECRET = re.compile(
    r"cs_[a-z]+_\w{6,}|whsec_\S{6,}|eyJ[\w-]{8,}\.[\w-]{8,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|(?i:bearer|basic)\s+\S{8,}|hv[sbr]\.[\w-]{20,}|-----BEGIN"
    r"|(?<![\w/+-])(?=[\w/+]*\d)(?=[\w/+]*[a-z])(?=[\w/+]*[A-Z])[\w/+]{32,}={0,2}"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")


class AuditEntry(NamedTuple):
    """One action in the audit log. Only the tenant `requester_id` may see the entry; "" means operators alone.

    `details` is a flat JSON object. The store sets `at` and `entry_id` when it appends the entry.
    """

    action: str
    requester_id: str = ""
    actor: str = ""
    target: str = ""
    outcome: str = "done"
    address: str = ""
    request_id: str = ""
    details: Json = "{}"
    at: int = 0
    entry_id: str = ""


def new_entry(action: str, details: Mapping[str, object] | None = None, **fields: str) -> AuditEntry:
    """Return an audit entry with these fields; raises InvalidInput for an unknown action or field.

    Text that looks like a key is hidden, long text is cut, and details other than strings, numbers, booleans and null
    are left out.
    """
    if unknown := set(fields) - set(TEXTS):
        raise InvalidInput(f"an entry of the audit log has no {', '.join(sorted(unknown))}")
    texts = {"outcome": "done", **fields}
    about = [texts.get(name, "") for name in TEXTS]
    return storable(AuditEntry._make((action, *about, json.dumps(dict(details or {}), default=str), 0, "")))


def storable(entry: AuditEntry) -> AuditEntry:
    """Return the entry in the form that a store may keep: a known action, and no text that looks like a secret."""
    if entry.action not in ACTIONS or entry.outcome not in OUTCOMES:
        raise InvalidInput(f"no action {entry.action!r} with outcome {entry.outcome!r} in the audit log")
    details = {
        plain(name): plain(value) if isinstance(value, str) else value
        for name, value in list(json.loads(entry.details).items())[:DETAILS_LIMIT]
        if isinstance(value, str | int | float | bool | None)
    }
    return entry._replace(
        requester_id=entry.requester_id[:TEXT_LIMIT],  # it must stay equal to the tenant's name
        actor=plain(entry.actor),
        target=plain(entry.target),
        address=plain(entry.address),
        request_id=plain(entry.request_id),
        details=json.dumps(details, ensure_ascii=False),
    )


def plain(text: str) -> str:
    """Return text for people: without control characters, cut to 255 characters, with anything like a key hidden."""
    whole = _CONTROL.sub(" ", text.encode("utf-8", "replace").decode())
    return _SECRET.sub(MASK, whole)[:TEXT_LIMIT]
