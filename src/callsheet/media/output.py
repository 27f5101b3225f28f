"""What was made of a source, and the checks that it is whole."""

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
MEASURE_SHARE = 0.2  # of the time of an output with loudness


class Output(NamedTuple):
    """A file that was made, and is whole. For HLS `key` is the folder, and `sha256` that of its playlist."""

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
    """How long an output has to be: until the last of its streams ends. 0 when the source does not say."""
    wanted = [stream for stream in (media.audio, media.video if spec.form.video else None) if stream is not None]
    ends = [(stream.start_s or 0.0) + stream.duration_s - media.start_s for stream in wanted if stream.duration_s]
    whole_s = max(ends) if ends and len(ends) == len(wanted) else media.duration_s
    start_s, end_s = spec.seconds(media)
    return max(0.0, min(end_s, whole_s) - start_s) if whole_s else 0.0


def check_duration(wanted_s: float, made_s: float, media: Media) -> None:
    """Raise OutputIncomplete when an output is shorter or longer than it may be. A slow source may lose a frame."""
    frame_s = 1.5 / media.video.fps if media.video is not None and media.video.fps else 0.0
    slack_s = max(SLACK_S, SLACK_SHARE * wanted_s, frame_s)
    if not made_s or (wanted_s and abs(made_s - wanted_s) > slack_s):
        raise OutputIncomplete(
            f"{made_s:.3f} s were written where {wanted_s:.3f} s were expected; the source may be damaged"
        )


def scaled(on_progress: Callable[[Progress], object], low: float, high: float) -> Callable[[Progress], object]:
    """Progress of one pass as a part of the whole."""

    def tell(progress: Progress) -> None:
        if progress.percent is not None:
            progress = progress._replace(percent=100 * low + progress.percent * (high - low))
        on_progress(progress)

    return tell


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
