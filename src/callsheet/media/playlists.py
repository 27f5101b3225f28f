"""Media playlists of HLS as ffmpeg writes them: read, checked, and given the right end."""

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
    """A media playlist: the length of each segment and its file."""

    lengths: tuple[float, ...]
    segments: tuple[str, ...]


def read_playlist(path: Path) -> Playlist:
    """A media playlist that is whole; raises OutputIncomplete."""
    try:
        text = path.read_text("utf-8")
    except OSError:
        raise OutputIncomplete(f"{path.name} was not written") from None
    if "#EXT-X-ENDLIST" not in text:
        raise OutputIncomplete(f"{path.name} has no end")
    segments = tuple(line for line in text.splitlines() if line and not line.startswith("#"))
    for name in segments:
        found = path.with_name(name) if _NAME(name) else None
        if found is None or not found.is_file() or not found.stat().st_size:
            raise OutputIncomplete(f"{path.name} names a segment that is not there")
    return Playlist(tuple(map(float, _LENGTH.findall(text))), segments)


def end_playlist(path: Path, end_s: float) -> None:
    """Let the last segment of a playlist end when the source does, and its target be as long as its longest segment."""
    text = path.read_text("utf-8")
    found = list(_LENGTH.finditer(text))
    if not found:
        return
    lengths = [float(match[1]) for match in found]
    lengths[-1] = max(LEAST_S, end_s - sum(lengths[:-1]))
    last = found[-1]
    text = f"{text[: last.start(1)]}{lengths[-1]:.6f}{text[last.end(1) :]}"
    target = max(1, *(round(length + 1e-9) for length in lengths))
    path.write_text(_TARGET.sub(f"#EXT-X-TARGETDURATION:{target}", text), "utf-8")
