"""Read and check ffmpeg's HLS playlists, and correct the length of the last segment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from .errors import OutputIncomplete

LEAST_S = 0.001  # of a segment
_LENGTH = re.compile(r"^#EXTINF:([\d.]+)", re.MULTILINE)
_TARGET = re.compile(r"^#EXT-X-TARGETDURATION:\d+", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,120}").fullmatch


class Playlist(NamedTuple):
    """A media playlist: each segment's length and file name."""

    lengths: tuple[float, ...]
    segments: tuple[str, ...]


def read_playlist(path: Path) -> Playlist:
    """Return a complete media playlist. Raises OutputIncomplete."""
    try:
        text = path.read_text("utf-8")
    except OSError:
        raise OutputIncomplete(f"{path.name} was not written") from None
    if "#EXT-X-ENDLIST" not in text:
        raise OutputIncomplete(f"{path.name} has no end")
    segments = tuple(line for line in text.splitlines() if line and not line.startswith("#"))
    for name in segments:
        segment = path.with_name(name) if _NAME(name) else None
        if segment is None or not segment.is_file() or not segment.stat().st_size:
            raise OutputIncomplete(f"{path.name} names a segment that is not there")
    return Playlist(tuple(map(float, _LENGTH.findall(text))), segments)


def end_playlist(path: Path, end_s: float) -> None:
    """Make the last segment end with the source, and set the target duration to the longest segment."""
    text = path.read_text("utf-8")
    matches = list(_LENGTH.finditer(text))
    if not matches:
        return
    lengths = [float(match[1]) for match in matches]
    lengths[-1] = max(LEAST_S, end_s - sum(lengths[:-1]))
    last = matches[-1]
    text = f"{text[: last.start(1)]}{lengths[-1]:.6f}{text[last.end(1) :]}"
    target = max(1, *(round(length + 1e-9) for length in lengths))
    path.write_text(_TARGET.sub(f"#EXT-X-TARGETDURATION:{target}", text), "utf-8")
