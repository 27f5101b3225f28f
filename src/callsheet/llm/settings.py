"""The model servers' addresses and keys, from the environment.

Every job reads them anew.

| variable | meaning |
|---|---|
| CALLSHEET_LLM_URL | base of an OpenAI-compatible API: http://jetson:8080/v1 |
| CALLSHEET_LLM_API_KEY, CALLSHEET_LLM_MODEL | optional |
| CALLSHEET_EMBED_URL, CALLSHEET_EMBED_API_KEY, CALLSHEET_EMBED_MODEL | for embeddings; default: the chat settings |
| CALLSHEET_EMBED_MODEL, CALLSHEET_EMBED_SHA256 | without a server: the folder of a local model, and its digest |
| CALLSHEET_VECTORS_URL | database of the passages; default: the job store's database |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .errors import NotConfigured

DEFAULT_VECTORS_URL = "sqlite:///callsheet-vectors.db"
MASK = "***"


@dataclass(frozen=True)
class Endpoint:
    """A model server. Its key never appears in logs or messages."""

    url: str
    api_key: str = field(default="", repr=False)
    model: str = ""

    def address(self, path: str) -> str:
        """Return the URL of a resource, such as `chat/completions`."""
        return f"{self.url.rstrip('/')}/{path}"

    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def hide(self, text: str) -> str:
        """Return a server's text with our API key replaced by asterisks."""
        return text.replace(self.api_key, MASK) if self.api_key else text


def chat_endpoint(environ: Mapping[str, str] | None = None) -> Endpoint:
    """Return the chat server. Raises NotConfigured."""
    environ = os.environ if environ is None else environ
    url = environ.get("CALLSHEET_LLM_URL", "").strip()
    if not url:
        advice = "set CALLSHEET_LLM_URL to the base of an OpenAI-compatible server, such as http://localhost:8080/v1"
        raise NotConfigured(f"no language model is configured; {advice}")
    key = _key(environ, "CALLSHEET_LLM_API_KEY")
    return Endpoint(_check_url(url, "CALLSHEET_LLM_URL"), key, environ.get("CALLSHEET_LLM_MODEL", "").strip())


def embed_endpoint(environ: Mapping[str, str] | None = None) -> Endpoint | None:
    """Return the embedding server, or None if none is set. Raises NotConfigured for an invalid setting."""
    environ = os.environ if environ is None else environ
    model = environ.get("CALLSHEET_EMBED_MODEL", "").strip()
    chat = chat_endpoint(environ) if environ.get("CALLSHEET_LLM_URL", "").strip() else None
    url = environ.get("CALLSHEET_EMBED_URL", "").strip()
    if not url:
        return chat and Endpoint(
            chat.url, _key(environ, "CALLSHEET_EMBED_API_KEY") or chat.api_key, model or chat.model
        )
    key = _key(environ, "CALLSHEET_EMBED_API_KEY")
    if not key and chat is not None and _origin(chat.url) == _origin(url):
        key = chat.api_key  # a key is sent only to the server that it belongs to
    return Endpoint(_check_url(url, "CALLSHEET_EMBED_URL"), key, model or (chat.model if chat else ""))


def vectors_url(database_url: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the URL of the passages' database: the job store's, or a file if the jobs are in memory or Redis."""
    environ = os.environ if environ is None else environ
    configured_url = environ.get("CALLSHEET_VECTORS_URL", "").strip()
    if configured_url:
        return configured_url
    scheme = database_url.partition(":")[0]
    is_shared = scheme in ("sqlite", "postgresql", "postgres") and ":memory:" not in database_url
    return database_url if is_shared else DEFAULT_VECTORS_URL


def _check_url(url: str, variable: str) -> str:
    try:
        parts = urlsplit(url)
        ok = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        ok = False
    if not ok:
        raise NotConfigured(f"{variable} is no http(s) address; write it like http://localhost:8080/v1")
    if parts.username or parts.password:  # the HTTP library logs addresses unchanged
        raise NotConfigured(f"{variable} holds a name or a password; give a key by its own variable")
    return url


def _key(environ: Mapping[str, str], variable: str) -> str:
    """Return a key that is valid in a header. A line break in it would put the key into the HTTP library's error."""
    key = environ.get(variable, "").strip()
    if not key.isascii() or not key.isprintable():
        raise NotConfigured(f"{variable} has characters that no key has; copy it again")
    return key


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
