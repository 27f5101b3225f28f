"""The version of the ffmpeg libraries inside PyAV."""

from __future__ import annotations


def version_of_pyav() -> str:
    """Return the version of PyAV's ffmpeg, such as `8.1.2`, or "" if unknown. Raises ModuleNotFoundError."""
    import av  # noqa: PLC0415 - an extra, and 50 MB that only few callers need

    return str(getattr(av, "ffmpeg_version_info", ""))
