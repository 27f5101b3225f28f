"""The sound of the whole video: each scene's WAV at its time, silence between, all at one even loudness.

Loudness is the mean power of the stretches in which something is said, close to what EBU R 128 calls integrated; peaks
over the ceiling are rounded off, not cut. Read scene by scene: an hour of sound is never in memory at once.
"""

from __future__ import annotations

import math
import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TARGET_DB = -16.0
MOST_GAIN_DB, LEAST_GAIN_DB = 12.0, -12.0
SILENCE_DB = -50.0
GATE_DB = 10.0
BLOCK_S = 0.4
CEILING = 0.84  # -1.5 dB
KNEE = 0.6

Samples = NDArray[np.float32]


class Part(NamedTuple):
    """A WAV and when it begins."""

    path: Path
    at_s: float


def join(parts: list[Part], duration_s: float, path: Path, *, even: bool = True) -> float:
    """Write the whole as one WAV of exactly `duration_s`; the gain in dB. `even`: bring it to the usual loudness."""
    rate_hz = _rate_of(parts[0].path)
    gain_db = _gain_db([_power(_read(part.path), rate_hz) for part in parts]) if even else 0.0
    total = round(duration_s * rate_hz)
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate_hz)
        written = 0
        for part in parts:
            silence = max(0, round(part.at_s * rate_hz) - written)
            samples = _shaped(_read(part.path) * np.float32(10 ** (gain_db / 20)))
            samples = samples[: max(0, total - written - silence)]
            out.writeframes(bytes(2 * silence))
            out.writeframes((samples * 32767).astype("<i2").tobytes())
            written += silence + len(samples)
        out.writeframes(bytes(2 * max(0, total - written)))
    return gain_db


def duration_of(path: Path) -> float:
    """How long a WAV is."""
    with wave.open(str(path), "rb") as file:
        return file.getnframes() / file.getframerate()


def _rate_of(path: Path) -> int:
    with wave.open(str(path), "rb") as file:
        return file.getframerate()


def _read(path: Path) -> Samples:
    with wave.open(str(path), "rb") as file:
        raw = file.readframes(file.getnframes())
    return np.frombuffer(raw, "<i2").astype(np.float32) / np.float32(32768)


def _power(samples: Samples, rate_hz: int) -> Samples:
    """The mean power of each block that is not silence."""
    block = int(rate_hz * BLOCK_S)
    count = len(samples) // block
    if not count:
        return np.zeros(0, np.float32)
    blocks = samples[: count * block].reshape(count, block)
    power: Samples = np.einsum("ij,ij->i", blocks, blocks) / np.float32(block)
    return power[power > 10 ** (SILENCE_DB / 10)]


def _gain_db(powers: list[Samples]) -> float:
    power = np.concatenate(powers)
    if not len(power):
        return 0.0
    loud = power[power > np.mean(power) * 10 ** (-GATE_DB / 10)]
    return min(MOST_GAIN_DB, max(LEAST_GAIN_DB, TARGET_DB - 10 * math.log10(float(np.mean(loud)))))


def _shaped(samples: Samples) -> Samples:
    """Peaks over the knee bend towards the ceiling."""
    size = np.abs(samples)
    over = np.maximum(size - KNEE, 0) / (CEILING - KNEE)
    bent = KNEE + (CEILING - KNEE) * np.tanh(over)
    shaped: Samples = np.where(size > KNEE, np.sign(samples) * bent, samples).astype(np.float32)
    return shaped
