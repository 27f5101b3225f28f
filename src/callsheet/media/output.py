"""Output files of a transcode, and the checks that they are complete.

Loudness is measured by EBU R128: one pass measures, the next applies one gain to the whole output. There is no
dynamic compression.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .arguments import input_for, length_of
from .errors import FfmpegFailed, OutputIncomplete
from .ffmpeg import Ffmpeg, Work, ignore_progress
from .probe import Media
from .progress import Progress
from .spec import OutputSpec

PEAK_DBTP = -1.5  # leaves room for what a lossy encoder adds
SILENCE_LUFS = -70.0
_REPORT = re.compile(r"\{[^{}]*\"input_i\"[^{}]*\}")

SLACK_S = 0.5
SLACK_SHARE = 0.01
MEASURE_SHARE = 0.2  # share of the progress of an output with loudness


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


async def gain_for(
    spec: OutputSpec, media: Media, folder: Path, how: Ffmpeg, on_progress: Callable[[Progress], object]
) -> tuple[float, Callable[[Progress], object]]:
    """Return the gain in dB that the spec asks for, and the progress callback for the rest of the work."""
    if spec.loudness_lufs is None:
        return 0.0, on_progress
    loudness = await measure(spec, media, folder, how, progress_within(on_progress, 0.0, MEASURE_SHARE))
    return loudness.gain_to(spec.loudness_lufs), progress_within(on_progress, MEASURE_SHARE, 1.0)


def read_report(stderr_tail: str) -> Loudness:
    """Parse the numbers that ffmpeg's loudnorm prints."""
    reports = _REPORT.findall(stderr_tail)
    try:
        report = json.loads(reports[-1])
        return Loudness(float(report["input_i"]), float(report["input_tp"]), float(report["input_lra"]))
    except (IndexError, KeyError, ValueError):
        raise FfmpegFailed("ffmpeg did not say how loud the source is") from None


class Output(NamedTuple):
    """A complete output file. For HLS `key` is the folder, and `sha256` that of its playlist."""

    key: str
    path: Path
    size_bytes: int
    duration_s: float
    codec: str
    sha256: str
    mime: str
    width: int = 0
    height: int = 0


def expected_s(media: Media, spec: OutputSpec) -> float:
    """Return an output's expected seconds: until its last stream ends. 0 if the source's length is unknown."""
    streams = [stream for stream in (media.audio, media.video if spec.form.video else None) if stream is not None]
    ends = [(stream.start_s or 0.0) + stream.duration_s - media.start_s for stream in streams if stream.duration_s]
    whole_s = max(ends) if ends and len(ends) == len(streams) else media.duration_s
    start_s, end_s = spec.seconds(media)
    return max(0.0, min(end_s, whole_s) - start_s) if whole_s else 0.0


def check_duration(expected_length_s: float, made_s: float, media: Media) -> None:
    """Raise OutputIncomplete if the output's length is wrong by more than the slack. A slow source may lose a frame."""
    frame_s = 1.5 / media.video.fps if media.video is not None and media.video.fps else 0.0
    slack_s = max(SLACK_S, SLACK_SHARE * expected_length_s, frame_s)
    if not made_s or (expected_length_s and abs(made_s - expected_length_s) > slack_s):
        raise OutputIncomplete(
            f"{made_s:.3f} s were written where {expected_length_s:.3f} s were expected; the source may be damaged"
        )


def progress_within(on_progress: Callable[[Progress], object], low: float, high: float) -> Callable[[Progress], object]:
    """Return a progress callback that maps one pass to a part of the whole."""

    def tell(progress: Progress) -> None:
        if progress.percent is not None:
            progress = progress._replace(percent=100 * low + progress.percent * (high - low))
        on_progress(progress)

    return tell


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
