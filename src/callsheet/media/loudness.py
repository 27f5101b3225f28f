"""Loudness by EBU R128: one pass measures, the next applies one gain to the whole output. No dynamic compression."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .arguments import input_for, length_of
from .errors import FfmpegFailed
from .ffmpeg import Ffmpeg, Work, ignore_progress
from .probe import Media
from .progress import Progress
from .spec import OutputSpec

PEAK_DBTP = -1.5  # leaves room for what a lossy encoder adds
SILENCE_LUFS = -70.0
_REPORT = re.compile(r"\{[^{}]*\"input_i\"[^{}]*\}")


class Loudness(NamedTuple):
    """Loudness of a whole source: integrated in LUFS, true peak in dBTP, range in LU."""

    integrated_lufs: float
    peak_dbtp: float
    range_lu: float

    def gain_to(self, target_lufs: float) -> float:
        """Return the gain in dB that reaches a target, less if a peak would clip; 0 for silence."""
        if not math.isfinite(self.integrated_lufs) or self.integrated_lufs <= SILENCE_LUFS:
            return 0.0
        gain_db = target_lufs - self.integrated_lufs
        return min(gain_db, PEAK_DBTP - self.peak_dbtp) if gain_db > 0 and math.isfinite(self.peak_dbtp) else gain_db


async def measure(
    spec: OutputSpec,
    media: Media,
    folder: Path,
    how: Ffmpeg,
    on_progress: Callable[[Progress], object] = ignore_progress,
) -> Loudness:
    """Measure the loudness of the part of the source that the output needs."""
    assert media.audio is not None  # noqa: S101 - checked with the spec
    start_s, end_s = spec.seconds(media)
    words = (*length_of(spec, media), "-map", f"0:{media.audio.number}", "-vn", "-sn", "-dn")
    words += ("-af", "loudnorm=print_format=json", "-f", "null", "-")
    work = Work((input_for(spec, media),), words, end_s - start_s, verbosity="info")
    return read_report((await how.run(work, folder, on_progress)).stderr_tail)


def read_report(stderr_tail: str) -> Loudness:
    """Parse the numbers that ffmpeg's loudnorm prints."""
    reports = _REPORT.findall(stderr_tail)
    try:
        report = json.loads(reports[-1])
        return Loudness(float(report["input_i"]), float(report["input_tp"]), float(report["input_lra"]))
    except (IndexError, KeyError, ValueError):
        raise FfmpegFailed("ffmpeg did not say how loud the source is") from None
