"""Paint all frames of a video, in order, into a pipe that the encoder reads. Runs in the child process.

Measured for 30 s of 720p with 25 sentences, in CPU seconds, x264 veryfast included: 6.9 this way (0.6 of it here),
and 28.7 as one graph of ffmpeg's loop, fade, overlay and xfade. A photograph over the whole screen: 20 here, 23 with
zoompan on a source of four times the size (smaller sources show its steps), 32 with perspective.

Planes are pictures in the encoder's form: brightness, and two colours at half the size (BT.709, limited range).
"""

from __future__ import annotations

import fcntl
import math
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from .draw import Drawn, layers_of
from .theme import ground, rounded_mask, shadow, theme_of

BRIGHT = (0.182586, 0.614231, 0.062007, 16.0)
BLUE = (-0.100644, -0.338572, 0.439216, 128.0)
RED = (0.439216, -0.398942, -0.040274, 128.0)
Box = tuple[float, float, float, float]

ZOOM = 0.06
PAN = 0.3
KEY_PX = 0.8  # movement of a photograph's edge between two keys; frames between are blends
CORNER = 18
SHADOW_BLUR, SHADOW_STRENGTH, SHADOW_DROP = 22, 0.5, 10

PIPE_BYTES = 1 << 20
LAST_S = 0.6


class Planes(NamedTuple):
    """The three colour planes of a picture or mask."""

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
    for below, picture, cover, at in zip(under, over, mask, ((x, y), *[(x // 2, y // 2)] * 2), strict=True):
        copy = below.copy()
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


def ease(share: float) -> float:
    """Map a linear share to a smooth one, slow at both ends."""
    share = min(1.0, max(0.0, share))
    return share * share * (3 - 2 * share)


class ShotFrames:
    """Renders the frames of one scene. Frames are requested in order; an unchanged picture is the same object."""

    def __init__(self, number: int, layers: Drawn, times: dict[str, Any], whole: dict[str, Any]) -> None:
        self.start: int = times["start"]
        self.end: int = times["end"]
        self._number = number
        self._layers = layers
        self._states: list[int] = times["states"]
        self._appear: int = whole["appear"]
        self._folder = Path(whole["folder"])
        self._size: tuple[int, int] = (whole["width"], whole["height"])
        self._unit: float = whole["unit"]
        self._theme = theme_of(layers.theme, whole["accent"])
        self._photo = _Photo(self, layers, self._folder) if layers.photo else None
        self._still = lru_cache(maxsize=3)(self._make_still)
        self._cover = lru_cache(maxsize=3)(self._make_cover)
        self._empty = lru_cache(maxsize=1)(self._make_empty)

    def frame(self, number: int) -> Planes:
        """Return one frame; after the scene's end, its last state."""
        state = max(at for at, start in enumerate(self._states) if start <= max(number, self.start))
        share = ease((number - self._states[state] + 1) / (self._appear + 1)) if state else 1.0
        if self._photo is not None and self._layers.is_full:
            photo = self._photo.at(number)
            now = put(photo, *self._cover(state))
            return now if share >= 1 else blend(put(photo, *self._cover(state - 1)), now, share)
        text = self._still(state) if share >= 1 else blend(self._still(state - 1), self._still(state), share)
        return self._with_photo(text, number)

    def bare(self, number: int) -> Planes:
        """Return a frame without text."""
        if self._photo is not None and self._layers.is_full:
            return self._photo.at(number)
        return self._with_photo(self._empty(), number)

    def poster(self, number: int) -> Image.Image:
        """Return one frame in full colour."""
        state = max(at for at, start in enumerate(self._states) if start <= number)
        picture = self._back()
        if self._photo is not None and self._layers.box is not None:
            photo = Image.open(self._folder / self._layers.photo).resize(self._layers.box[2:], Image.Resampling.LANCZOS)
            picture.paste(photo, self._layers.box[:2], self._photo.mask.y)
        return self._with_layer(picture, state)

    def _with_photo(self, planes: Planes, number: int) -> Planes:
        if self._photo is None or self._layers.box is None:
            return planes
        return put(planes, self._photo.at(number), self._photo.mask, (self._layers.box.x, self._layers.box.y))

    def _make_empty(self) -> Planes:
        return planes_of(self._back())

    def _back(self) -> Image.Image:
        """Return the background, with the photograph's shadow."""
        picture = ground(self._theme, self._size).copy()
        if self._layers.box is not None and not self._layers.is_full:
            left, top, right, bottom = self._layers.box.edges
            drop = round(SHADOW_DROP * self._unit)
            edges = (left, top + drop, right, bottom + drop)
            strength = SHADOW_STRENGTH if self._theme.name == "dark" else SHADOW_STRENGTH / 2
            picture.paste((0, 0, 0), (0, 0), shadow(self._size, edges, SHADOW_BLUR * self._unit, strength))
        return picture

    def _with_layer(self, picture: Image.Image, state: int) -> Image.Image:
        still = self._layers.stills[state]
        with Image.open(self._folder / still.file) as layer:
            picture.paste(layer.convert("RGB"), (still.x, still.y), layer.getchannel("A"))
        return picture

    def _make_still(self, state: int) -> Planes:
        return planes_of(self._with_layer(self._back(), state))

    def _make_cover(self, state: int) -> tuple[Planes, Planes]:
        still = self._layers.stills[state]
        whole = Image.new("RGBA", self._size, (0, 0, 0, 0))
        with Image.open(self._folder / still.file) as layer:
            whole.paste(layer, (still.x, still.y))
        return planes_of(whole.convert("RGB")), mask_of(whole.getchannel("A"))


class _Photo:
    """A slowly zooming photograph. Key pictures are cropped exactly; other frames blend two key pictures.

    A key every 0.8 pixels costs less than half of cropping each frame, and looks the same.
    """

    def __init__(self, shot: ShotFrames, layers: Drawn, folder: Path) -> None:
        assert layers.box is not None  # noqa: S101 - a photo has a place
        self._shot = shot
        self._size = (layers.box.width, layers.box.height)
        with Image.open(folder / layers.photo) as photo:
            even = photo.crop((0, 0, photo.width // 2 * 2, photo.height // 2 * 2)).convert("RGB")
        self._source = planes_of(even)
        number = shot._number  # noqa: SLF001 - of the same module
        self._inwards = number % 2 == 0
        self._side = (0.5 + PAN * (-1) ** (number // 2), 0.5 - PAN * (-1) ** number)
        radius = 0.0 if layers.is_full else CORNER * shot._unit  # noqa: SLF001
        self.mask = mask_of(rounded_mask(self._size, radius) if radius else Image.new("L", self._size, 255))
        self._keys = max(2, math.ceil(ZOOM * max(self._size) * (0.5 + PAN) / KEY_PX))
        self._key = lru_cache(maxsize=3)(self._make_key)

    def at(self, number: int) -> Planes:
        """Return the photograph for a frame."""
        length = self._shot.end - self._shot.start
        place = min(1.0, max(0.0, (number - self._shot.start) / (length * 1.1))) * self._keys
        before = min(self._keys - 1, int(place))
        return blend(self._key(before), self._key(before + 1), place - before)

    def _make_key(self, key: int) -> Planes:
        share = key / self._keys if self._inwards else 1 - key / self._keys
        width, height = (side * (1 - ZOOM * share) for side in self._source.y.size)
        left = (self._source.y.width - width) * self._side[0]
        top = (self._source.y.height - height) * self._side[1]
        return cut(self._source, (left, top, left + width, top + height), self._size)


def paint_all(order: dict[str, Any]) -> int:
    """Paint all frames of an order; return their number."""
    film = Film(order)
    poster = order["poster"]
    film.shots[0].poster(poster["frame"]).save(poster["path"], quality=92, optimize=True)
    pipe = os.open(order["pipe"], os.O_WRONLY)
    try:
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        last_planes, data = None, b""
        for number in range(film.frames):
            planes = film.frame(number)
            if planes is not last_planes:
                last_planes, data = planes, planes.data()
            _write(pipe, data)
    finally:
        os.close(pipe)
    return film.frames


class Film:
    """The scenes in order, with a cross-fade between neighbours."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._cross: int = order["cross"]
        self._frames_by_scene: dict[int, ShotFrames] = {}
        self._starts = [times["start"] for times in order["shots"]]
        self._last = round(LAST_S * order["fps"])
        self.frames: int = order["shots"][-1]["end"]
        self.shots = [self._shot(0)]

    def frame(self, number: int) -> Planes:
        """Return one frame."""
        at = max(place for place, start in enumerate(self._starts) if start <= number)
        shot = self._shot(at)
        since = number - shot.start
        if since < self._cross:
            planes = self._crossing(at, number, ease((since + 1) / (self._cross + 1)))
        else:
            planes = shot.frame(number)
        left = self.frames - 1 - number
        if left < self._last:
            planes = blend(shot.bare(number), planes, ease(left / self._last))
        return planes

    def _crossing(self, at: int, number: int, share: float) -> Planes:
        """Fade from one scene to the next: old text out, then pictures, then new text in.

        A cross-fade between two texts is unreadable and looks like a mistake.
        """
        shot = self._shot(at)
        if at == 0:
            return blend(shot.bare(number), shot.frame(number), share)
        after = blend(shot.bare(number), shot.frame(number), max(0.0, 2 * share - 1))
        before = self._shot(at - 1)
        faded_out = blend(before.bare(number), before.frame(number), max(0.0, 1 - 2 * share))
        return blend(faded_out, after, share)

    def _shot(self, at: int) -> ShotFrames:
        if at not in self._frames_by_scene:
            self._frames_by_scene.pop(at - 2, None)  # that scene has ended
            self._frames_by_scene[at] = ShotFrames(
                at, layers_of(self._order["drawn"][at]), self._order["shots"][at], self._order
            )
        return self._frames_by_scene[at]


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]
