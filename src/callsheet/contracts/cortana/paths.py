"""Where the contract keeps files: the same keys in a folder and in a bucket."""

from __future__ import annotations

ORIGINALS = "videos/original"
MASTER = "master.mp4"
MANIFEST = "manifest.json"


def original(video_id: str) -> str:
    """The video as it was uploaded."""
    return f"{ORIGINALS}/{video_id}/{MASTER}"


def proxies(video_id: str) -> str:
    """The folder of its HLS."""
    return f"videos/proxy/{video_id}"


def poster(video_id: str) -> str:
    """Its thumbnail."""
    return f"thumbs/{video_id}/poster.jpg"


def frames(video_id: str) -> str:
    """The folder of its key frames."""
    return f"frames/{video_id}"


def frame(video_id: str, timestamp_ms: int) -> str:
    """One key frame."""
    return f"{frames(video_id)}/{timestamp_ms}.jpg"


def manifest(video_id: str) -> str:
    """The list of its key frames: when each was taken, and how long it holds."""
    return f"{frames(video_id)}/{MANIFEST}"


def clip(video_id: str, clip_id: str) -> str:
    """One clip of it."""
    return f"videos/clips/{video_id}/{clip_id}.mp4"


def clips(video_id: str) -> str:
    """The folder of its clips."""
    return f"videos/clips/{video_id}"


def log(job_id: str) -> str:
    """What one job of the pipeline did."""
    return f"logs/pipeline/{job_id}.json"


def folders(video_id: str) -> tuple[str, ...]:
    """All that belongs to one video."""
    return f"{ORIGINALS}/{video_id}", proxies(video_id), f"thumbs/{video_id}", frames(video_id), clips(video_id)
