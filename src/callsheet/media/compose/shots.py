"""One scene as frames: background, text states, and a slowly moving photograph."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image

from .draw import Drawn
from .planes import Planes, blend, cut, mask_of, planes_of, put
from .theme import ground, rounded_mask, shadow, theme_of

ZOOM = 0.06
PAN = 0.3
KEY_PX = 0.8  # movement of a photograph's edge between two keys; frames between are blends
CORNER = 18
SHADOW_BLUR, SHADOW_STRENGTH, SHADOW_DROP = 22, 0.5, 10


def ease(share: float) -> float:
    """Map a linear share to a smooth one, slow at both ends."""
    share = min(1.0, max(0.0, share))
    return share * share * (3 - 2 * share)


class ShotFrames:
    """The frames of one scene. Frames are requested in order; an unchanged picture is the same object."""

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
        """Return colours and mask of a text state, for pasting over a photograph."""
        still = self._layers.stills[state]
        whole = Image.new("RGBA", self._size, (0, 0, 0, 0))
        with Image.open(self._folder / still.file) as layer:
            whole.paste(layer, (still.x, still.y))
        return planes_of(whole.convert("RGB")), mask_of(whole.getchannel("A"))


class _Photo:
    """A slowly zooming photograph. Key pictures are cropped exactly; a frame between two keys is a blend.

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
