"""What can be looked for by its kind: mentions, hashtags, URLs, emoji and numbers.

| kind    | value          | normalised value                                             |
|---------|----------------|--------------------------------------------------------------|
| mention | @Marta_Builds  | @marta_builds                                                |
| hashtag | #Größe         | #grösse (casefolded)                                         |
| url     | Example.org/a  | http://example.org/a                                         |
| emoji   | 👍🏽            | 👍 (no skin tone, no variation selector)                     |
| number  | $1,299.00      | 1299.00 USD (see `numbers`)                                  |

Engines do not read emoji off pictures; they are found in text from elsewhere, such as titles and subtitles.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from .links import Link, links
from .normalise import displayed, normalized
from .numbers import numbers
from .records import Entity, EntityType

# Not after a letter, a digit or a dot: "marta@example.org" mentions nobody.
_MENTION = regex.compile(r"(?<![\w.@/+-])@[A-Za-z0-9_]+(?:\.[a-z0-9_]+)*(?![\w@])")
_HASHTAG = regex.compile(r"(?<![\w&/#])[#＃][\p{L}\p{M}\p{N}_]+")
_PICTURE = r"(?!\p{Emoji_Modifier})\p{Emoji_Presentation}"  # a tone of skin alone is on nobody
_SHOWN = rf"(?:{_PICTURE}|[❤☺☹✌☝]|\p{{Extended_Pictographic}}(?=\uFE0F|\p{{Emoji_Modifier}}|\u200D))"
_ONE = rf"{_SHOWN}(?!\uFE0E)(?:\p{{Emoji_Modifier}}|\uFE0F)?(?:[\U000E0020-\U000E007E]+\U000E007F)?"
_JOINED = r"\p{Extended_Pictographic}(?:\p{Emoji_Modifier}|\uFE0F)?"
_EMOJI = regex.compile(rf"\p{{RI}}\p{{RI}}|[0-9#*]\uFE0F?\u20E3|{_ONE}(?:\u200D{_JOINED})*")
_DRESSED = regex.compile(r"[\uFE0E\uFE0F]|\p{Emoji_Modifier}")

Found = tuple[int, int, Entity]


def entities(text: str) -> list[Entity]:
    """Those of a text, in the order in which they stand in it; each value once."""
    shown = displayed(text)
    addresses = list(links(shown))
    found = [
        *((link.start, link.end, Entity("url", link.value, link.normalized_value)) for link in addresses),
        *_plain("mention", _MENTION, shown),
        *_plain("hashtag", _HASHTAG, shown),
        *_emoji(shown),
    ]
    found = [one for one in found if one[2].entity_type == "url" or not _lies_in(one, addresses)]
    left = _without(shown, found)
    found += [(one.start, one.end, Entity("number", one.value, one.normalized_value)) for one in numbers(left)]
    return list(dict.fromkeys(entity for _, _, entity in sorted(found)))


def _plain(kind: EntityType, pattern: regex.Pattern[str], text: str) -> Iterator[Found]:
    for match in pattern.finditer(text):
        yield match.start(), match.end(), Entity(kind, match[0], normalized(match[0]))


def _emoji(text: str) -> Iterator[Found]:
    for match in _EMOJI.finditer(text):
        yield match.start(), match.end(), Entity("emoji", match[0], _DRESSED.sub("", match[0]))


def _lies_in(one: Found, addresses: list[Link]) -> bool:
    return any(link.start <= one[0] < link.end for link in addresses)


def _without(text: str, found: list[Found]) -> str:
    """The text with those made blank, so that no digit of them is a number; places stay what they are."""
    letters = list(text)
    for start, end, _ in found:
        letters[start:end] = "\0" * (end - start)
    return "".join(letters)
