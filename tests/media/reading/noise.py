"""Readings as an engine gives them: equal text with occasional errors, deterministic per seed."""

from __future__ import annotations

import random

from callsheet.media.reading.records import Box, Seen

PLACE: Box = (200, 600, 880, 48)
CONFUSED = {"l": "1I|", "o": "0c", "O": "0Q", "i": "l1", "s": "5", "S": "5$", "e": "c", "m": "rn", "B": "8", "a": "o"}


def saw(text: str, t_start: int, t_end: int, box: Box = PLACE, confidence: float = 0.9) -> Seen:
    """Return one detection."""
    return Seen(f"{t_start}-{text}", t_start, t_end, text, confidence, box, "eng")


def misread(text: str, chance: random.Random) -> str:
    """Return the text with one or two misread letters.

    A confused letter, a lost or doubled space, a sign, another case.
    """
    letters = list(text)
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(letters))
        kind = chance.random()
        if kind < 0.6 and any(letter in CONFUSED for letter in letters):
            at = chance.choice([place for place, letter in enumerate(letters) if letter in CONFUSED])
            letters[at] = chance.choice(CONFUSED[letters[at]])
        elif kind < 0.75 and " " in letters:
            letters[letters.index(" ")] = ""
        elif kind < 0.9:
            letters.insert(len(letters), chance.choice(".,'|"))
        else:
            letters[at] = letters[at].swapcase()
    return "".join(letters)


def noisy(texts: list[str], seed: int, frames: int = 8, each_ms: int = 500, share: float = 0.3) -> list[Seen]:
    """Yield each text for a number of frames, misreading a share of them."""
    chance = random.Random(seed)
    seen = []
    for at in range(len(texts) * frames):
        text = texts[at // frames]
        slips = chance.random() < share
        read = misread(text, chance) if slips else text
        jitter = (PLACE[0] + chance.randrange(-3, 4), PLACE[1] + chance.randrange(-2, 3), PLACE[2], PLACE[3])
        seen.append(saw(read, at * each_ms, (at + 1) * each_ms, jitter, 0.7 if slips else 0.93))
    return seen
