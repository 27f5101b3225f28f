"""The libraries of ffmpeg that PyAV brings along: which version they are."""

from __future__ import annotations


def version_of_pyav() -> str:
    """As they call themselves, `8.1.2`; empty when they do not say. Raises ModuleNotFoundError without PyAV."""
    import av  # noqa: PLC0415 - an extra, and 50 MB that only few callers need

    return str(getattr(av, "ffmpeg_version_info", ""))
