"""Where the models are, from the environment. Read for every job, so that a test or a reload need not restart.

| variable | meaning |
|---|---|
| CALLSHEET_LLM_URL | base of an OpenAI-compatible API: http://jetson:8080/v1 |
| CALLSHEET_LLM_API_KEY, CALLSHEET_LLM_MODEL | optional |
| CALLSHEET_EMBED_URL, CALLSHEET_EMBED_API_KEY, CALLSHEET_EMBED_MODEL | for embeddings; those above unless given |
| CALLSHEET_EMBED_MODEL, CALLSHEET_EMBED_SHA256 | without a server: the folder of a local model, and its digest |
| CALLSHEET_VECTORS_URL | where passages are kept; the job store's database unless given |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .errors import NotConfigured

DEFAULT_VECTORS_URL = "sqlite:///callsheet-vectors.db"
HIDDEN = "***"


@dataclass(frozen=True)
class Endpoint:
    """One server. The key is never shown."""

    url: str
    api_key: str = field(default="", repr=False)
    model: str = ""

    def address(self, path: str) -> str:
        """The URL of one of its resources, such as `chat/completions`."""
        return f"{self.url.rstrip('/')}/{path}"

    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def hide(self, text: str) -> str:
        """A text of the server's with our key taken out."""
        return text.replace(self.api_key, HIDDEN) if self.api_key else text


def chat_endpoint(environ: Mapping[str, str] | None = None) -> Endpoint:
    """The server for chat; raises NotConfigured."""
    environ = os.environ if environ is None else environ
    url = environ.get("CALLSHEET_LLM_URL", "").strip()
    if not url:
        advice = "set CALLSHEET_LLM_URL to the base of an OpenAI-compatible server, such as http://localhost:8080/v1"
        raise NotConfigured(f"no language model is configured; {advice}")
    key = _key(environ, "CALLSHEET_LLM_API_KEY")
    return Endpoint(_checked(url, "CALLSHEET_LLM_URL"), key, environ.get("CALLSHEET_LLM_MODEL", "").strip())


def embed_endpoint(environ: Mapping[str, str] | None = None) -> Endpoint | None:
    """The server for embeddings, None when there is none; raises NotConfigured for one that cannot be right."""
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
        key = chat.api_key  # a key goes to no other server than the one it was given for
    return Endpoint(_checked(url, "CALLSHEET_EMBED_URL"), key, model or (chat.model if chat else ""))


def vectors_url(database_url: str, environ: Mapping[str, str] | None = None) -> str:
    """Where passages are kept. A store in memory or on Redis cannot hold them, so a file beside it does."""
    environ = os.environ if environ is None else environ
    given = environ.get("CALLSHEET_VECTORS_URL", "").strip()
    if given:
        return given
    scheme = database_url.partition(":")[0]
    shared = scheme in ("sqlite", "postgresql", "postgres") and ":memory:" not in database_url
    return database_url if shared else DEFAULT_VECTORS_URL


def _checked(url: str, variable: str) -> str:
    try:
        parts = urlsplit(url)
        ok = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        ok = False
    if not ok:
        raise NotConfigured(f"{variable} is no http(s) address; write it like http://localhost:8080/v1")
    if parts.username or parts.password:  # the HTTP library logs addresses as they are
        raise NotConfigured(f"{variable} holds a name or a password; give a key by its own variable")
    return url


def _key(environ: Mapping[str, str], variable: str) -> str:
    """A key that can be a header: a line break in it would show up in the HTTP library's error, key and all."""
    key = environ.get(variable, "").strip()
    if not key.isascii() or not key.isprintable():
        raise NotConfigured(f"{variable} has characters that no key has; copy it again")
    return key


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
