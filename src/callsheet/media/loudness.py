"""Loudness by EBU R128: one pass measures, and the next applies one gain to the whole. Nothing is compressed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .arguments import input_for, length_of
from .errors import FfmpegFailed
from .ffmpeg import Ffmpeg, Work, unconcerned
from .probe import Media
from .progress import Progress
from .spec import OutputSpec

PEAK_DBTP = -1.5  # leaves room for what a lossy encoder adds
SILENCE_LUFS = -70.0
_REPORT = re.compile(r"\{[^{}]*\"input_i\"[^{}]*\}")


class Loudness(NamedTuple):
    """Of a whole source: integrated, in LUFS; its true peak, in dBTP; its range, in LU."""

    integrated_lufs: float
    peak_dbtp: float
    range_lu: float

    def gain_to(self, target_lufs: float) -> float:
        """The gain in dB that reaches a target, less where a peak would come too high; none for silence."""
        if not math.isfinite(self.integrated_lufs) or self.integrated_lufs <= SILENCE_LUFS:
            return 0.0
        wanted = target_lufs - self.integrated_lufs
        return min(wanted, PEAK_DBTP - self.peak_dbtp) if wanted > 0 and math.isfinite(self.peak_dbtp) else wanted


async def measure(
    spec: OutputSpec, media: Media, folder: Path, how: Ffmpeg, on_progress: Callable[[Progress], object] = unconcerned
) -> Loudness:
    """Measure what an output will be made of."""
    assert media.audio is not None  # noqa: S101 - checked with the spec
    start_s, end_s = spec.seconds(media)
    words = (*length_of(spec, media), "-map", f"0:{media.audio.number}", "-vn", "-sn", "-dn")
    words += ("-af", "loudnorm=print_format=json", "-f", "null", "-")
    work = Work((input_for(spec, media),), words, end_s - start_s, verbosity="info")
    return read_report((await how.run(work, folder, on_progress)).said)


def read_report(said: str) -> Loudness:
    """The numbers that loudnorm prints."""
    found = _REPORT.findall(said)
    try:
        report = json.loads(found[-1])
        return Loudness(float(report["input_i"]), float(report["input_tp"]), float(report["input_lra"]))
    except (IndexError, KeyError, ValueError):
        raise FfmpegFailed("ffmpeg did not say how loud the source is") from None
