"""Acts of operators at a terminal, for the audit log: written by the command that did them, with the actor `cli`."""

from __future__ import annotations

import contextlib
import getpass
from typing import TYPE_CHECKING, Any

from callsheet.kernel.audit import new_entry
from callsheet.vault.redact import redact

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

ACTOR = "cli"


async def note(store: Store, action: str, *, target: str = "", requester_id: str = "", **details: Any) -> None:
    """Write one act. `requester_id` is the tenant that it is about; the name of this machine's user is kept with it."""
    about = {name: redact(value) if isinstance(value, str) else value for name, value in details.items()}
    with contextlib.suppress(OSError, KeyError):  # a container may have a user without a name
        about["user"] = getpass.getuser()
    entry = new_entry(
        action, {**about, "operator": True}, actor=ACTOR, target=redact(target), requester_id=requester_id
    )
    await store.audit_append([entry])
