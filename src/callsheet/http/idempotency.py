"""The Idempotency-Key header: its syntax, and the hash that identifies a repeated request."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from .problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

MOST = 255
VISIBLE = re.compile(r"[!-~]{1,255}").fullmatch
IS_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"').fullmatch


def key_of(request: Request) -> str | None:
    """Return the request's idempotency key, or None; raises Problem. `"abc"` and `abc` are the same key."""
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) > 1:
        raise Problem("bad_request", "send one Idempotency-Key, not several")
    text = values[0].strip()
    if match := IS_QUOTED(text):
        text = re.sub(r"\\(.)", r"\1", match[1])
    if not VISIBLE(text):
        raise Problem("bad_request", f"an Idempotency-Key has 1 to {MOST} visible ASCII characters and no spaces")
    return text


def request_hash(request: Request, body: Any) -> str:
    """Return a hash of method, path, query and JSON body, independent of the body's whitespace and key order."""
    parts = (request.method, request.url.path, request.url.query, json.dumps(body, sort_keys=True, ensure_ascii=False))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
