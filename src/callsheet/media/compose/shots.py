"""One scene as frames: its ground, its text in its states, its photograph that moves slowly."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image

from .draw import Drawn
from .planes import Planes, blend, cut, mask_of, planes_of, put
from .theme import ground, rounded, shadow, theme_of

ZOOM = 0.06
PAN = 0.3
KEY_PX = 0.8  # how far the edge of a photograph moves from one key to the next; frames between are blends of two
CORNER = 18
SHADOW_BLUR, SHADOW_STRENGTH, SHADOW_DROP = 22, 0.5, 10


def ease(share: float) -> float:
    """From 0 to 1, slow at both ends."""
    share = min(1.0, max(0.0, share))
    return share * share * (3 - 2 * share)


class ShotFrames:
    """The frames of one scene. Asked in order; what no longer changes is the same object again."""

    def __init__(self, number: int, drawn: Drawn, times: dict[str, Any], whole: dict[str, Any]) -> None:
        self.start: int = times["start"]
        self.end: int = times["end"]
        self._number = number
        self._drawn = drawn
        self._states: list[int] = times["states"]
        self._appear: int = whole["appear"]
        self._folder = Path(whole["folder"])
        self._size: tuple[int, int] = (whole["width"], whole["height"])
        self._unit: float = whole["unit"]
        self._theme = theme_of(drawn.theme, whole["accent"])
        self._photo = _Photo(self, drawn, self._folder) if drawn.photo else None
        self._still = lru_cache(maxsize=3)(self._make_still)
        self._cover = lru_cache(maxsize=3)(self._make_cover)
        self._empty = lru_cache(maxsize=1)(self._make_empty)

    def frame(self, number: int) -> Planes:
        """One frame; after the end, as the last."""
        state = max(at for at, start in enumerate(self._states) if start <= max(number, self.start))
        share = ease((number - self._states[state] + 1) / (self._appear + 1)) if state else 1.0
        if self._photo is not None and self._drawn.is_full:
            moving = self._photo.at(number)
            now = put(moving, *self._cover(state))
            return now if share >= 1 else blend(put(moving, *self._cover(state - 1)), now, share)
        text = self._still(state) if share >= 1 else blend(self._still(state - 1), self._still(state), share)
        return self._with_photo(text, number)

    def bare(self, number: int) -> Planes:
        """A frame without text."""
        if self._photo is not None and self._drawn.is_full:
            return self._photo.at(number)
        return self._with_photo(self._empty(), number)

    def poster(self, number: int) -> Image.Image:
        """One frame in full colour."""
        state = max(at for at, start in enumerate(self._states) if start <= number)
        picture = self._back()
        if self._photo is not None and self._drawn.box is not None:
            photo = Image.open(self._folder / self._drawn.photo).resize(self._drawn.box[2:], Image.Resampling.LANCZOS)
            picture.paste(photo, self._drawn.box[:2], self._photo.mask.y)
        return self._with_layer(picture, state)

    def _with_photo(self, planes: Planes, number: int) -> Planes:
        if self._photo is None or self._drawn.box is None:
            return planes
        return put(planes, self._photo.at(number), self._photo.mask, (self._drawn.box.x, self._drawn.box.y))

    def _make_empty(self) -> Planes:
        return planes_of(self._back())

    def _back(self) -> Image.Image:
        """The ground, with the shadow of the photograph."""
        picture = ground(self._theme, self._size).copy()
        if self._drawn.box is not None and not self._drawn.is_full:
            left, top, right, bottom = self._drawn.box.edges
            drop = round(SHADOW_DROP * self._unit)
            edges = (left, top + drop, right, bottom + drop)
            strength = SHADOW_STRENGTH if self._theme.name == "dark" else SHADOW_STRENGTH / 2
            picture.paste((0, 0, 0), (0, 0), shadow(self._size, edges, SHADOW_BLUR * self._unit, strength))
        return picture

    def _with_layer(self, picture: Image.Image, state: int) -> Image.Image:
        still = self._drawn.stills[state]
        with Image.open(self._folder / still.file) as layer:
            picture.paste(layer.convert("RGB"), (still.x, still.y), layer.getchannel("A"))
        return picture

    def _make_still(self, state: int) -> Planes:
        return planes_of(self._with_layer(self._back(), state))

    def _make_cover(self, state: int) -> tuple[Planes, Planes]:
        """The text of a state for a photograph under it: its colours and its mask."""
        still = self._drawn.stills[state]
        whole = Image.new("RGBA", self._size, (0, 0, 0, 0))
        with Image.open(self._folder / still.file) as layer:
            whole.paste(layer, (still.x, still.y))
        return planes_of(whole.convert("RGB")), mask_of(whole.getchannel("A"))


class _Photo:
    """A photograph that is zoomed slowly. Keys are cut out exactly; a frame between two keys is a blend of them.

    A key each 0.8 pixels costs less than half of cutting each frame, and looks the same.
    """

    def __init__(self, shot: ShotFrames, drawn: Drawn, folder: Path) -> None:
        assert drawn.box is not None  # noqa: S101 - a photo has a place
        self._shot = shot
        self._size = (drawn.box.width, drawn.box.height)
        with Image.open(folder / drawn.photo) as photo:
            even = photo.crop((0, 0, photo.width // 2 * 2, photo.height // 2 * 2)).convert("RGB")
        self._source = planes_of(even)
        number = shot._number  # noqa: SLF001 - of the same module
        self._inwards = number % 2 == 0
        self._side = (0.5 + PAN * (-1) ** (number // 2), 0.5 - PAN * (-1) ** number)
        radius = 0.0 if drawn.is_full else CORNER * shot._unit  # noqa: SLF001
        self.mask = mask_of(rounded(self._size, radius) if radius else Image.new("L", self._size, 255))
        self._keys = max(2, math.ceil(ZOOM * max(self._size) * (0.5 + PAN) / KEY_PX))
        self._key = lru_cache(maxsize=3)(self._make_key)

    def at(self, number: int) -> Planes:
        """As it is in a frame."""
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
