"""Output files of a transcode, and the checks that they are complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .errors import OutputIncomplete
from .probe import Media
from .progress import Progress
from .spec import OutputSpec

SLACK_S = 0.5
SLACK_SHARE = 0.01
MEASURE_SHARE = 0.2  # share of the progress of an output with loudness


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
