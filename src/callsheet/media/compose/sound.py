"""The sound of the whole video: each scene's WAV at its time, silence between scenes, one even loudness.

Loudness is the mean power of audible blocks, close to EBU R 128's integrated loudness; peaks over the ceiling are
rounded off, not clipped. Scenes are read one at a time, so an hour of sound is never in memory at once.
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
    """A WAV and its start time."""

    path: Path
    at_s: float


def join(parts: list[Part], duration_s: float, path: Path, *, even: bool = True) -> float:
    """Write one WAV of exactly `duration_s`; return the gain in dB. `even` adjusts to the target loudness."""
    rate_hz = _rate_of(parts[0].path)
    gain_db = _gain_db([_power(_read(part.path), rate_hz) for part in parts]) if even else 0.0
    total = round(duration_s * rate_hz)
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate_hz)
        written_frames = 0
        for part in parts:
            silence = max(0, round(part.at_s * rate_hz) - written_frames)
            samples = _soft_limit(_read(part.path) * np.float32(10 ** (gain_db / 20)))
            samples = samples[: max(0, total - written_frames - silence)]
            out.writeframes(bytes(2 * silence))
            out.writeframes((samples * 32767).astype("<i2").tobytes())
            written_frames += silence + len(samples)
        out.writeframes(bytes(2 * max(0, total - written_frames)))
    return gain_db


def duration_of(path: Path) -> float:
    """Return the duration of a WAV in seconds."""
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


def _soft_limit(samples: Samples) -> Samples:
    """Bend peaks above the knee towards the ceiling."""
    size = np.abs(samples)
    over = np.maximum(size - KNEE, 0) / (CEILING - KNEE)
    soft_peaks = KNEE + (CEILING - KNEE) * np.tanh(over)
    limited_samples: Samples = np.where(size > KNEE, np.sign(samples) * soft_peaks, samples).astype(np.float32)
    return limited_samples
