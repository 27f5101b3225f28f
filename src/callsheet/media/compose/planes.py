"""Pictures in the encoder's form: brightness, and two colours at half the size (BT.709, limited range)."""

from __future__ import annotations

from typing import NamedTuple

from PIL import Image

BRIGHT = (0.182586, 0.614231, 0.062007, 16.0)
BLUE = (-0.100644, -0.338572, 0.439216, 128.0)
RED = (0.439216, -0.398942, -0.040274, 128.0)
Box = tuple[float, float, float, float]


class Planes(NamedTuple):
    """A picture, a part of a picture, or a mask."""

    y: Image.Image
    u: Image.Image
    v: Image.Image

    def data(self) -> bytes:
        """Return the frame's bytes in yuv420p."""
        return self.y.tobytes() + self.u.tobytes() + self.v.tobytes()


def planes_of(picture: Image.Image) -> Planes:
    """Convert an RGB picture with even sides."""
    y, u, v = (picture.convert("L", matrix) for matrix in (BRIGHT, BLUE, RED))
    return Planes(y, u.reduce(2), v.reduce(2))


def mask_of(mask: Image.Image) -> Planes:
    """Return a mask for each plane."""
    half = mask.reduce(2)
    return Planes(mask, half, half)


def blend(one: Planes, other: Planes, share: float) -> Planes:
    """Mix two pictures; `share` is the weight of the second."""
    y, u, v = (Image.blend(a, b, share) for a, b in zip(one, other, strict=True))
    return Planes(y, u, v)


def put(under: Planes, over: Planes, mask: Planes, place: tuple[int, int] = (0, 0)) -> Planes:
    """Return a copy of `under` with `over` pasted at even coordinates."""
    x, y = place
    planes = []
    for ground, picture, cover, at in zip(under, over, mask, ((x, y), *[(x // 2, y // 2)] * 2), strict=True):
        copy = ground.copy()
        copy.paste(picture, at, cover)
        planes.append(copy)
    return Planes(*planes)


def cut(source: Planes, box: Box, size: tuple[int, int]) -> Planes:
    """Crop a box, whose edges may lie between pixels, and scale it to a size."""
    half = size[0] // 2, size[1] // 2
    small = (box[0] / 2, box[1] / 2, box[2] / 2, box[3] / 2)
    return Planes(
        source.y.resize(size, Image.Resampling.BICUBIC, box),
        source.u.resize(half, Image.Resampling.BILINEAR, small),
        source.v.resize(half, Image.Resampling.BILINEAR, small),
    )
