"""Object keys of the contract's files, the same in a folder and in a bucket."""

from __future__ import annotations

ORIGINALS = "videos/original"
MASTER = "master.mp4"
MANIFEST = "manifest.json"


def original(video_id: str) -> str:
    """Return the key of the uploaded video."""
    return f"{ORIGINALS}/{video_id}/{MASTER}"


def proxies(video_id: str) -> str:
    """Return the folder of the video's HLS files."""
    return f"videos/proxy/{video_id}"


def poster(video_id: str) -> str:
    """Return the key of the video's poster."""
    return f"thumbs/{video_id}/poster.jpg"


def frames(video_id: str) -> str:
    """Return the folder of the video's key frames."""
    return f"frames/{video_id}"


def frame(video_id: str, timestamp_ms: int) -> str:
    """Return the key of one key frame."""
    return f"{frames(video_id)}/{timestamp_ms}.jpg"


def manifest(video_id: str) -> str:
    """Return the key of the key frame list, which has the time and duration of each frame."""
    return f"{frames(video_id)}/{MANIFEST}"


def clip(video_id: str, clip_id: str) -> str:
    """Return the key of one clip."""
    return f"videos/clips/{video_id}/{clip_id}.mp4"


def clips(video_id: str) -> str:
    """Return the folder of the video's clips."""
    return f"videos/clips/{video_id}"


def log(job_id: str) -> str:
    """Return the key of a pipeline job's log."""
    return f"logs/pipeline/{job_id}.json"


def folders(video_id: str) -> tuple[str, ...]:
    """Return all folders of a video."""
    return f"{ORIGINALS}/{video_id}", proxies(video_id), f"thumbs/{video_id}", frames(video_id), clips(video_id)
