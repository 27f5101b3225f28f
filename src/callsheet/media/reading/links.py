"""Find web addresses in a text. File names and code attributes look like hosts; this module tells them apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from linkify_it import LinkifyIt

# Suffixes of files that are also countries: "main.py" is no host in Paraguay.
_FILES = frozenset(
    {"cc", "cs", "la", "md", "mk", "ml", "mm", "ms", "pl", "pm", "ps", "py", "rs", "sc", "sh", "so", "tf"}
)
_OBJECTS = frozenset({"self", "this", "cls", "os", "sys", "obj", "args", "req", "res", "request", "event", "window"})
_MORE_ENDS = (
    *("app", "blog", "cloud", "club", "dev", "games", "live", "media", "news", "online", "page", "site", "space"),
    *("store", "studio", "tech", "video", "xyz"),
)
_SCHEMES = ("http:", "https:", "", "//")
_JOINED_SENTENCES = re.compile(r"[a-zäöüß]\.[A-Z][a-z]$")  # "the end.So" is two sentences
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Link(NamedTuple):
    """An address: its position, its written form, and its normalised form."""

    start: int
    end: int
    value: str
    normalized_value: str


def links(text: str) -> Iterator[Link]:
    """Yield all http and https addresses, even without a scheme, but no e-mail addresses."""
    for match in _linkify().match(text) or ():
        if match.schema not in _SCHEMES:
            continue
        if match.schema in {"", "//"} and not _is_host(text, match.index, match.last_index):
            continue
        yield Link(match.index, match.last_index, match.raw, one_form(match.url))


def one_form(url: str) -> str:
    """Normalise a URL: lower-case scheme and host, no default port, no lone final slash; "http" by default."""
    url = f"http:{url}" if url.startswith("//") else url
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    host = (parts.hostname or "").removesuffix(".")
    if ":" in host:
        host = f"[{host}]"
    if port and port != _DEFAULT_PORTS.get(parts.scheme):
        host = f"{host}:{port}"
    path = "" if parts.path == "/" and not parts.query and not parts.fragment else parts.path
    return urlunsplit((parts.scheme, host, path, parts.query, parts.fragment))


@cache
def _linkify() -> LinkifyIt:
    linkify = LinkifyIt(options={"fuzzy_link": True, "fuzzy_email": True, "fuzzy_ip": False})
    linkify.tlds(list(_MORE_ENDS), keep_old=True)
    return linkify


def _is_host(text: str, start: int, end: int) -> bool:
    """Whether text without a scheme is a host, rather than a file, attribute, call or sentence end."""
    written = text[start:end]
    host, slash, path = written.removeprefix("//").partition("/")
    if host.lower().startswith("www."):
        return True
    if start and text[start - 1] in "._$@\\":
        return False
    *labels, last = host.lower().split(":")[0].split(".")
    if slash:
        return bool(path) and labels[0] not in _OBJECTS
    if text[end : end + 1] in {"(", "[", "_", "="}:
        return False
    return not (last in _FILES or last == "name" or labels[0] in _OBJECTS or _JOINED_SENTENCES.search(host))
