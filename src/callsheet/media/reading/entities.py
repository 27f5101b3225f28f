"""Find entities in a text: mentions, hashtags, URLs, emoji and numbers.

| kind    | value          | normalised value                                             |
|---------|----------------|--------------------------------------------------------------|
| mention | @Marta_Builds  | @marta_builds                                                |
| hashtag | #Größe         | #grösse (casefolded)                                         |
| url     | Example.org/a  | http://example.org/a                                         |
| emoji   | 👍🏽            | 👍 (no skin tone, no variation selector)                     |
| number  | $1,299.00      | 1299.00 USD (see `numbers`)                                  |

Engines cannot read emoji in pictures; they occur in other text, such as titles and subtitles.

File names and code attributes look like hosts; `links` tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import regex
from linkify_it import LinkifyIt

from .normalise import display_form, normalized
from .numbers import numbers
from .records import Entity, EntityType

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

# Not after a letter, a digit or a dot: "marta@example.org" is an address, no mention.
_MENTION = regex.compile(r"(?<![\w.@/+-])@[A-Za-z0-9_]+(?:\.[a-z0-9_]+)*(?![\w@])")
_HASHTAG = regex.compile(r"(?<![\w&/#])[#＃][\p{L}\p{M}\p{N}_]+")
_PICTURE = r"(?!\p{Emoji_Modifier})\p{Emoji_Presentation}"  # a skin tone alone is no emoji
_VISIBLE = rf"(?:{_PICTURE}|[❤☺☹✌☝]|\p{{Extended_Pictographic}}(?=\uFE0F|\p{{Emoji_Modifier}}|\u200D))"
_ONE = rf"{_VISIBLE}(?!\uFE0E)(?:\p{{Emoji_Modifier}}|\uFE0F)?(?:[\U000E0020-\U000E007E]+\U000E007F)?"
_JOINED_PICTURE = r"\p{Extended_Pictographic}(?:\p{Emoji_Modifier}|\uFE0F)?"
_EMOJI = regex.compile(rf"\p{{RI}}\p{{RI}}|[0-9#*]\uFE0F?\u20E3|{_ONE}(?:\u200D{_JOINED_PICTURE})*")
_VARIATIONS = regex.compile(r"[\uFE0E\uFE0F]|\p{Emoji_Modifier}")

Match = tuple[int, int, Entity]


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
    address = text[start:end]
    host, slash, path = address.removeprefix("//").partition("/")
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


def entities(text: str) -> list[Entity]:
    """Return the entities of a text in order of position, each value once."""
    display_text = display_form(text)
    addresses = list(links(display_text))
    matches = [
        *((link.start, link.end, Entity("url", link.value, link.normalized_value)) for link in addresses),
        *_plain("mention", _MENTION, display_text),
        *_plain("hashtag", _HASHTAG, display_text),
        *_emoji(display_text),
    ]
    matches = [one for one in matches if one[2].entity_type == "url" or not _lies_in(one, addresses)]
    remaining_text = _without(display_text, matches)
    matches += [
        (one.start, one.end, Entity("number", one.value, one.normalized_value)) for one in numbers(remaining_text)
    ]
    return list(dict.fromkeys(entity for _, _, entity in sorted(matches)))


def _plain(kind: EntityType, pattern: regex.Pattern[str], text: str) -> Iterator[Match]:
    for match in pattern.finditer(text):
        yield match.start(), match.end(), Entity(kind, match[0], normalized(match[0]))


def _emoji(text: str) -> Iterator[Match]:
    for match in _EMOJI.finditer(text):
        yield match.start(), match.end(), Entity("emoji", match[0], _VARIATIONS.sub("", match[0]))


def _lies_in(one: Match, addresses: list[Link]) -> bool:
    return any(link.start <= one[0] < link.end for link in addresses)


def _without(text: str, matches: list[Match]) -> str:
    """Return the text with all matches blanked, so that their digits are no numbers; positions stay valid."""
    letters = list(text)
    for start, end, _ in matches:
        letters[start:end] = "\0" * (end - start)
    return "".join(letters)
