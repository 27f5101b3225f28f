"""The system's own secrets: one document per secret, created by the first process that needs the secret.

In a process with a keyring the document holds the secret sealed; reading a clear secret seals it. Without a keyring the
secret is stored in the clear, protected only by the store's own access rules.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from callsheet.kernel.errors import CallsheetError, DocumentConflict
from callsheet.store.protocol import Document, Store

SECRET_BYTES = 32
SEALED_FIELD = "sealed"
RACES = 10


class Sealer(Protocol):
    """Seal texts for storage. Sealed text opens only for the same owner and requester."""

    async def seal(self, plain: str, *, owner: str, requester_id: str) -> str:
        """Return the sealed text."""

    async def open(self, sealed: str, *, owner: str, requester_id: str) -> str:
        """Return the text that was sealed."""


Sealers = Callable[[], Sealer | None]  # called only when a secret is needed: a keyring may be a remote service


class SecretSealed(CallsheetError):
    """A secret of the system is sealed, and this process lacks the keyring."""

    code = "no_keyring"


class Place(NamedTuple):
    """The kind and name of a secret's document. `is_bare`: a clear document holds just the text, for older programs."""

    kind: str
    name: str
    is_bare: bool = False

    @property
    def owner(self) -> str:
        """The owner name that binds the seal."""
        return f"system/{self.kind}/{self.name}"

    def clear(self, text: str) -> str:
        """Return the body of the document in the clear."""
        return json.dumps(text if self.is_bare else {"secret": text})


OBJECT_LINKS = Place("objects", "signing-secret")
LEASE_TOKENS = Place("lease_secret", "1", is_bare=True)
TRANSCODE_IDS = Place("transcode", "job-ids")
PLACES = (OBJECT_LINKS, LEASE_TOKENS, TRANSCODE_IDS)


async def system_secret(store: Store, place: Place, sealer: Sealer | None = None) -> bytes:
    """Return a secret shared by all processes of a store; raises SecretSealed and the keyring's errors."""
    for _ in range(RACES):
        for document in await store.documents(place.kind, place.name):
            text = await _read(place, document, sealer)
            if sealer is not None and sealed_text(document) is None:
                await _seal(store, place, document, text, sealer)
            return bytes.fromhex(text)
        text = secrets.token_hex(SECRET_BYTES)
        body = place.clear(text) if sealer is None else await _sealed_body(place, text, sealer)
        try:
            await store.put_document(Document(place.kind, place.name, body, 0))
        except DocumentConflict:
            continue  # another process was faster: read its secret
        return bytes.fromhex(text)
    raise DocumentConflict(f"{place.owner} changed {RACES} times while it was being read; try again")


def sealed_text(document: Document) -> str | None:
    """Return the sealed text in a document; None for a clear document."""
    body: Any = json.loads(document.body)
    return str(body[SEALED_FIELD]) if isinstance(body, dict) and SEALED_FIELD in body else None


def with_sealed(document: Document, text: str) -> Document:
    """Return the document with this sealed text as its body."""
    return document._replace(body=json.dumps({SEALED_FIELD: text}))


async def _read(place: Place, document: Document, sealer: Sealer | None) -> str:
    secret = sealed_text(document)
    if secret is None:
        body = json.loads(document.body)
        return str(body if isinstance(body, str) else body["secret"])
    if sealer is None:
        advice = "give this process the keyring: CALLSHEET_KEYS_FILE, CALLSHEET_KEYS or CALLSHEET_KMS"
        raise SecretSealed(f"the secret {place.owner} of this store is sealed; {advice}")
    return await sealer.open(secret, owner=place.owner, requester_id="")


async def _seal(store: Store, place: Place, document: Document, text: str, sealer: Sealer) -> None:
    """Replace the clear secret by the sealed one; a simultaneous seal by another process is just as good."""
    try:
        await store.put_document(document._replace(body=await _sealed_body(place, text, sealer)))
    except DocumentConflict:
        return


async def _sealed_body(place: Place, text: str, sealer: Sealer) -> str:
    return json.dumps({SEALED_FIELD: await sealer.seal(text, owner=place.owner, requester_id="")})
