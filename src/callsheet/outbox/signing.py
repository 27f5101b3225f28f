"""The signature headers of a delivery, for both the contract's scheme and Standard Webhooks.

    x-euterpe-signature   hex of HMAC-SHA256(key, timestamp + "." + nonce + "." + raw body)
    webhook-signature     v1,base64 of HMAC-SHA256(key, id + "." + timestamp + "." + raw body)

The key is the 32 bytes encoded in base64 in a secret `whsec_…`. During a secret's rotation each header has two
signatures, newest first, separated by a comma in `x-euterpe-signature` and by a space in `webhook-signature`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

from callsheet.engine.ids import new_id
from callsheet.kernel.errors import InvalidInput

HEAD = "whsec_"
KEY_BYTES = 32
IS_FIELD = re.compile(r"[A-Za-z0-9_-]{1,128}").fullmatch  # no ".", the separator of the signed fields


def new_secret() -> str:
    """Generate the text of a secret with 256 random bits."""
    return HEAD + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """Decode a secret's key; raises InvalidInput without revealing the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(HEAD), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(HEAD) or len(key) < KEY_BYTES:
        raise InvalidInput(f"a webhook secret is {HEAD} and the base64 of at least {KEY_BYTES} bytes")
    return key


def signature(key: bytes, timestamp: str, nonce: str, body: bytes) -> str:
    """Return the contract's signature; raises InvalidInput for a nonce outside 1 to 128 letters, digits, - and _."""
    if not IS_FIELD(nonce):
        raise InvalidInput("a nonce has 1 to 128 letters, digits, '-' and '_'")
    return hmac.new(key, b".".join((timestamp.encode(), nonce.encode(), body)), hashlib.sha256).hexdigest()


def standard_signature(key: bytes, event_id: str, timestamp: str, body: bytes) -> str:
    """Return the Standard Webhooks signature, version 1."""
    digest = hmac.new(key, b".".join((event_id.encode(), timestamp.encode(), body)), hashlib.sha256)
    return f"v1,{base64.b64encode(digest.digest()).decode()}"


def signed_headers(keys: Sequence[bytes], event_id: str, body: bytes, *, attempt: int, at_s: int) -> dict[str, str]:
    """Return the headers of one attempt with a fresh nonce; raises InvalidInput for an invalid event id."""
    if not IS_FIELD(event_id):
        raise InvalidInput("an event id has 1 to 128 letters, digits, '-' and '_'")
    timestamp, nonce = str(at_s), new_id().replace("-", "")
    return {
        "x-euterpe-signature": ",".join(signature(key, timestamp, nonce, body) for key in keys),
        "x-euterpe-timestamp": timestamp,
        "x-euterpe-nonce": nonce,
        "x-euterpe-event-id": event_id,
        "webhook-id": event_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(standard_signature(key, event_id, timestamp, body) for key in keys),
        "webhook-attempt": str(attempt),
    }
