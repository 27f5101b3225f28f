"""Made-up videos whose words and reading errors are known: equal for equal seeds, on every machine."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import Box, NewEntity, NewSegment, Video, VideoStatus, Writer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ONSETS = ("b", "br", "c", "d", "f", "g", "gl", "h", "k", "l", "m", "n", "p", "pr", "r", "s", "st", "t", "tr", "v", "w")
VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "io", "ou")
ENDS = ("", "", "n", "r", "s", "t", "l", "rn", "nd", "st", "m")
MISREAD = {
    "o": "0",
    "l": "1",
    "i": "l",
    "s": "5",
    "m": "rn",
    "b": "8",
    "e": "c",
    "g": "9",
    "u": "v",
    "h": "b",
    "z": "2",
}
LANGUAGES = ("en", "de", "fr", None)


class Line(NamedTuple):
    """A line of text as shown on screen, and as OCR read it."""

    video: int
    clean: tuple[str, ...]
    read: tuple[str, ...]


class Corpus:
    """Words with Zipf's frequencies, and lines of them with a share of the words damaged."""

    def __init__(self, seed: int, *, words: int, damaged: float = 0.22) -> None:
        self.chance = random.Random(seed)
        self.damaged = damaged
        made = dict.fromkeys(self._word() for _ in range(words * 3))
        self.words = list(made)[:words]
        self._weights = list(accumulate(1 / (rank + 1) for rank in range(len(self.words))))

    def _word(self) -> str:
        syllables = self.chance.choice((1, 2, 2, 3, 3, 4))
        pick = self.chance.choice
        return "".join(pick(ONSETS) + pick(VOWELS) for _ in range(syllables)) + pick(ENDS)

    def line(self, video: int) -> Line:
        """Four to twelve words, some misread."""
        clean = self.chance.choices(self.words, cum_weights=self._weights, k=self.chance.randint(4, 12))
        read = [self.damage(word) if self.chance.random() < self.damaged else word for word in clean]
        return Line(video, tuple(clean), tuple(read))

    def damage(self, word: str) -> str:
        """One error as OCR makes them; one word in fifteen gets a second one."""
        word = self._error(word)
        return self._error(word) if self.chance.random() < 1 / 15 else word

    def _error(self, word: str) -> str:
        at = self.chance.randrange(len(word))
        kind = self.chance.random()
        if kind < 0.5:
            some = [i for i, letter in enumerate(word) if letter in MISREAD]
            at = self.chance.choice(some) if some else at
            return word[:at] + MISREAD.get(word[at], self.chance.choice(LETTERS)) + word[at + 1 :]
        if kind < 0.75 or len(word) == 1:
            return word[:at] + self.chance.choice(LETTERS) + word[at + 1 :]
        if kind < 0.9:
            return word[:at] + word[at + 1 :]
        return word[:at] + self.chance.choice(LETTERS) + word[at:]

    def lines(self, video: int, count: int) -> list[Line]:
        """Return one video's segments."""
        return [self.line(video) for _ in range(count)]


def video_id_of(number: int) -> str:
    return str(uuid.UUID(int=(1 << 80) + number))


def segments_of(corpus: Corpus, lines: list[Line]) -> Iterator[tuple[NewSegment, list[NewEntity]]]:
    """Return the rows of a video: sometimes with a mention, a tag or a price."""
    chance = corpus.chance
    for i, line in enumerate(lines):
        words = list(line.read)
        entities = []
        segment_id = f"{line.video:05}-{i:06}"
        if chance.random() < 0.1:
            kind, value = chance.choice((("mention", "@"), ("hashtag", "#")))
            value += chance.choice(corpus.words[:200])
            words.append(value)
            entities.append(NewEntity(f"{segment_id}-0", segment_id, kind, value, value))
        if chance.random() < 0.05:
            value = f"{chance.randrange(200)}.{chance.randrange(100):02}"
            words.append(f"${value}")
            entities.append(NewEntity(f"{segment_id}-1", segment_id, "number", value, value))
        text = " ".join(words).capitalize()
        digest = hashlib.sha256(text.casefold().encode()).hexdigest()
        box = Box(chance.randrange(1800), chance.randrange(1000), 100, 40)
        confidence = round(chance.uniform(0.6, 1), 3)
        start = i * 700
        new = NewSegment(
            segment_id,
            start,
            start + 900,
            text,
            text.casefold(),
            digest,
            confidence,
            box,
            chance.choice(LANGUAGES),
            True,
        )
        yield new, entities


async def put(
    catalog: Catalog, number: int, owner: str, team: str | None, rows: list[tuple[NewSegment, list[NewEntity]]]
) -> str:
    """Enter a video with its text."""
    video_id = video_id_of(number)
    path = f"videos/original/{video_id}/master.mp4"
    await catalog.add_video(Video(video_id, owner, team, f"Video {number}", VideoStatus.QUEUED, path))
    writer = Writer(str(uuid.UUID(int=(1 << 90) + number)), 1)
    await catalog.begin(video_id, writer, "segment_index")
    entities = [entity for _, some in rows for entity in some]
    await catalog.replace_segments(video_id, writer, [segment for segment, _ in rows], entities)
    return video_id
