"""Without a voice: a soft tone for each sentence, and word times at reading speed."""

from __future__ import annotations

import array
import math

from .espeak import Word
from .sentences import is_wide

RATE_HZ = 22_050
NOTES_HZ = (392.0, 440.0, 523.25, 440.0)
TONE_S = 0.9
LOUDNESS = 3_500
SIGNS_PER_WORD = 2.2
LEAST_S = 1.2


def tone(text: str, number: int, words_per_minute: int) -> tuple[bytes, list[Word]]:
    """Return 16-bit mono samples, a fading tone and then silence, and the words' times."""
    offsets = _word_offsets(text)
    step_s = 60 / words_per_minute
    length_s = max(LEAST_S, len(offsets) * step_s)
    pitch = NOTES_HZ[number % len(NOTES_HZ)]
    samples = array.array("h", bytes(2 * int(RATE_HZ * length_s)))
    for at in range(min(len(samples), int(RATE_HZ * TONE_S))):
        time_s = at / RATE_HZ
        shape = min(1.0, time_s / 0.03) * math.exp(-4.5 * time_s) * min(1.0, (TONE_S - time_s) / 0.1)
        wave = math.sin(2 * math.pi * pitch * time_s) + 0.25 * math.sin(4 * math.pi * pitch * time_s)
        samples[at] = round(LOUDNESS * shape * wave)
    return samples.tobytes(), [Word(offset, round(1000 * n * step_s)) for n, offset in enumerate(offsets)]


def _word_offsets(text: str) -> list[int]:
    if is_wide(text):
        return [int(at * SIGNS_PER_WORD) for at in range(max(1, int(len(text) / SIGNS_PER_WORD)))]
    starts = [at for at, one in enumerate(text) if not one.isspace() and (at == 0 or text[at - 1].isspace())]
    return starts or [0]
