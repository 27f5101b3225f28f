"""Find entities in a text: mentions, hashtags, URLs, emoji and numbers.

| kind    | value          | normalised value                                             |
|---------|----------------|--------------------------------------------------------------|
| mention | @Marta_Builds  | @marta_builds                                                |
| hashtag | #Größe         | #grösse (casefolded)                                         |
| url     | Example.org/a  | http://example.org/a                                         |
| emoji   | 👍🏽            | 👍 (no skin tone, no variation selector)                     |
| number  | $1,299.00      | 1299.00 USD (see `numbers`)                                  |

Engines cannot read emoji in pictures; they occur in other text, such as titles and subtitles.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from .links import Link, links
from .normalise import display_form, normalized
from .numbers import numbers
from .records import Entity, EntityType

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
