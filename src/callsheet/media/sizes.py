"""Picture sizes: always even, and never larger than the source unless requested. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

RUNGS = (1080, 720, 480, 360)
SMALLEST = 2
# maximum kilobits a second, by the shorter side; other sizes get values in between
RATES = {1080: 5000, 720: 3000, 480: 1400, 360: 800}


class Rendition(NamedTuple):
    """One of several sizes of the same video."""

    name: str
    width: int
    height: int
    video_kbps: int
    audio_kbps: int = 128


def even(length: float, most: int) -> int:
    """Return the nearest even number, between 2 and `most`: 4:2:0 video needs even sides."""
    return max(SMALLEST, min(round(length / 2) * 2, most // 2 * 2))


def fit(shown: tuple[int, int], width: int = 0, height: int = 0, *, upscale: bool = False) -> tuple[int, int]:
    """Return the largest size with the same aspect inside a frame; 0 leaves a side open."""
    scales = [limit / side for limit, side in ((width, shown[0]), (height, shown[1])) if limit]
    scale = min(scales, default=1.0)
    if not upscale:
        scale = min(scale, 1.0)
    return _scaled(shown, scale)


def ladder(shown: tuple[int, int], rungs: tuple[int, ...] = RUNGS) -> tuple[Rendition, ...]:
    """Return sizes from large to small, named by the shorter side. A source below all rungs keeps its own size."""
    shorter = min(shown)
    heights = [rung for rung in sorted(rungs, reverse=True) if rung <= shorter] or [even(shorter, shorter)]
    return tuple(_rendition(shown, rung) for rung in heights)


def _rendition(shown: tuple[int, int], rung: int) -> Rendition:
    width, height = _scaled(shown, rung / min(shown))
    above = min((rate for rate in RATES if rate >= rung), default=max(RATES))
    return Rendition(f"{rung}p", width, height, max(200, round(RATES[above] * (min(rung, above) / above) ** 1.5)))


def _scaled(shown: tuple[int, int], scale: float) -> tuple[int, int]:
    width, height = (even(side * scale, max(side, round(side * scale))) for side in shown)
    return width, height
