"""Captions as WebVTT."""

from __future__ import annotations

from collections.abc import Iterable

from .sentences import pieces
from .timeline import Cue

ROW_CHARS = 44


def web_vtt(cues: Iterable[Cue], language: str = "") -> str:
    """Return the whole WebVTT file."""
    head = f"WEBVTT\nLanguage: {language}\n" if language else "WEBVTT\n"
    return head + "".join(f"\n{number}\n{_cue(cue)}\n" for number, cue in enumerate(cues, 1))


def _cue(cue: Cue) -> str:
    rows = "\n".join(row for _, row in pieces(cue.text, ROW_CHARS))
    safe = rows.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"{_time(cue.start_ms)} --> {_time(cue.end_ms)}\n{safe}"


def _time(ms: int) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{ms:03}"
