"""Choose a poster for a video: the frame with the most contrast among seven positions."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .arguments import PLAIN, colours, fit
from .errors import NoSuchStream, OutputIncomplete
from .ffmpeg import Ffmpeg, Input, Work
from .probe import Media

PLACES = (0.0, 0.04, 0.12, 0.25, 0.4, 0.6, 0.8)
SMALL = (64, 36)
MIDDLE = 118.0  # of 255: much darker or brighter frames show less
POSTER = "poster.jpg"
MOST_WIDTH, MOST_HEIGHT = 1280, 1280
DARK_SCORE = 4.0


class Poster(NamedTuple):
    """A poster JPEG and its video time. `is_dark`: no brighter frame exists."""

    path: Path
    at_s: float
    width: int
    height: int
    is_dark: bool


async def make_poster(media: Media, folder: Path, how: Ffmpeg, name: str = POSTER) -> Poster:
    """Write `poster.jpg` into a folder. Raises NoSuchStream for a source without video."""
    if media.video is None:
        raise NoSuchStream("the source has no moving picture, so there is no poster of it")
    part = folder / f"{name}.part"
    part.mkdir(mode=0o700)
    try:
        places = places_of(media.duration_s)
        await how.run(_small_frames(media, places), part)
        at_s, score = best_of({place: part / f"{at}.gray" for at, place in enumerate(places)})
        width, height = fit(media.video.shown_size, MOST_WIDTH, MOST_HEIGHT)
        await how.run(_one_frame(media, at_s, (width, height), how), part)
        if not (part / POSTER).is_file():
            raise OutputIncomplete("no frame could be decoded")
        (part / POSTER).replace(folder / name)
        return Poster(folder / name, at_s, width, height, score < DARK_SCORE)
    finally:
        await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)


def places_of(duration_s: float) -> tuple[float, ...]:
    """Return the candidate times in seconds; the first frame is always among them."""
    return tuple(dict.fromkeys(round(duration_s * share, 3) for share in PLACES))


def best_of(frames: dict[float, Path]) -> tuple[float, float]:
    """Return the time and score of the best frame. Raises OutputIncomplete without frames."""
    scores = {}
    for at_s, path in frames.items():
        pixels = np.frombuffer(path.read_bytes() if path.is_file() else b"", np.uint8)
        if pixels.size == SMALL[0] * SMALL[1]:
            scores[at_s] = score_of(pixels.astype(np.float64))
    if not scores:
        raise OutputIncomplete("no frame could be decoded")
    best = max(scores, key=scores.__getitem__)
    return best, scores[best]


def score_of(pixels: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return contrast, reduced by distance from medium brightness. A black frame scores 0."""
    away = abs(float(pixels.mean()) - MIDDLE) / 255
    return float(pixels.std()) * (1 - away)


def _small_frames(media: Media, places: tuple[float, ...]) -> Work:
    """Return one ffmpeg run that extracts a small frame at each time; the source is opened once per time."""
    assert media.video is not None  # noqa: S101 - make_poster checks
    inputs = tuple(Input(media.path, media.kind.demuxer, ("-ss", f"{place:.6f}")) for place in places)
    words: list[str] = []
    for at in range(len(places)):
        words += ["-map", f"{at}:{media.video.number}", "-frames:v", "1", "-an"]
        words += ["-vf", f"scale={SMALL[0]}:{SMALL[1]}:flags=area,format=gray", "-f", "rawvideo", f"{at}.gray"]
    return Work(inputs, tuple(words), strict=False)


def _one_frame(media: Media, at_s: float, size: tuple[int, int], how: Ffmpeg) -> Work:
    assert media.video is not None  # noqa: S101 - make_poster checks
    scale = f"scale={size[0]}:{size[1]}:out_range=full"
    filters = [*colours(media.video, how.binary), scale, "setsar=1", "format=yuvj420p"]
    words = ["-map", f"0:{media.video.number}", "-frames:v", "1", "-an", "-vf", ",".join(filters)]
    words += ["-c:v", "mjpeg", "-q:v", "3", *PLAIN, "-f", "image2", "-update", "1", POSTER]
    return Work((Input(media.path, media.kind.demuxer, ("-ss", f"{at_s:.6f}")),), tuple(words), strict=False)
