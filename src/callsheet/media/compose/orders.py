"""Records as JSON between us and the child: named tuples go out as lists and come back as what they were."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from .draw import Drawn, Still
from .fonts import Faces
from .layout import Box
from .script import Line, Picture, Scene
from .sfnt import FontFile


def scene_of(raw: list[Any]) -> Scene:
    """A scene that was written as JSON."""
    scene = Scene(*raw)
    picture = None if scene.picture is None else Picture(*scene.picture)
    return scene._replace(lines=tuple(Line(*line) for line in scene.lines), picture=picture)


def faces_of(raw: list[Any]) -> Faces:
    """Faces that were written as JSON."""
    plain, bold = (tuple(_font(one) for one in fonts) for fonts in raw)
    return Faces(plain, bold)


def drawn_of(raw: list[Any]) -> Drawn:
    """The layers of a scene that were written as JSON."""
    drawn = Drawn(*raw)
    stills = tuple(Still(*still) for still in drawn.stills)
    return drawn._replace(stills=stills, box=None if drawn.box is None else Box(*drawn.box))


def faces_as_json(faces: Faces) -> list[list[list[Any]]]:
    """Faces as `faces_of` reads them."""
    return [[list(astuple(font)) for font in fonts] for fonts in faces]


def _font(raw: list[Any]) -> FontFile:
    path, number, family, style, is_colour, is_variable, starts, ends = raw
    return FontFile(path, number, family, style, is_colour, is_variable, tuple(starts), tuple(ends))
