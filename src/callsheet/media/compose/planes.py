"""Pictures as an encoder wants them: brightness, and two colours at half the size (BT.709, limited range)."""

from __future__ import annotations

from typing import NamedTuple

from PIL import Image

BRIGHT = (0.182586, 0.614231, 0.062007, 16.0)
BLUE = (-0.100644, -0.338572, 0.439216, 128.0)
RED = (0.439216, -0.398942, -0.040274, 128.0)
Box = tuple[float, float, float, float]


class Planes(NamedTuple):
    """One picture, or a part of one, or a mask for one."""

    y: Image.Image
    u: Image.Image
    v: Image.Image

    def data(self) -> bytes:
        """The bytes of a frame in yuv420p."""
        return self.y.tobytes() + self.u.tobytes() + self.v.tobytes()


def planes_of(picture: Image.Image) -> Planes:
    """An RGB picture, whose sides are even."""
    y, u, v = (picture.convert("L", matrix) for matrix in (BRIGHT, BLUE, RED))
    return Planes(y, u.reduce(2), v.reduce(2))


def mask_of(mask: Image.Image) -> Planes:
    """A mask for each plane."""
    half = mask.reduce(2)
    return Planes(mask, half, half)


def blend(one: Planes, other: Planes, share: float) -> Planes:
    """`share` of the other over the one."""
    y, u, v = (Image.blend(a, b, share) for a, b in zip(one, other, strict=True))
    return Planes(y, u, v)


def put(under: Planes, over: Planes, mask: Planes, place: tuple[int, int] = (0, 0)) -> Planes:
    """A copy with another picture on it, at an even place."""
    x, y = place
    found = []
    for ground, picture, cover, at in zip(under, over, mask, ((x, y), *[(x // 2, y // 2)] * 2), strict=True):
        copy = ground.copy()
        copy.paste(picture, at, cover)
        found.append(copy)
    return Planes(*found)


def cut(source: Planes, box: Box, size: tuple[int, int]) -> Planes:
    """A part of a picture, whose box may lie between pixels, brought to a size."""
    half = size[0] // 2, size[1] // 2
    small = (box[0] / 2, box[1] / 2, box[2] / 2, box[3] / 2)
    return Planes(
        source.y.resize(size, Image.Resampling.BICUBIC, box),
        source.u.resize(half, Image.Resampling.BILINEAR, small),
        source.v.resize(half, Image.Resampling.BILINEAR, small),
    )
