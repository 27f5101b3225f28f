"""Convert records to and from JSON for the child process: named tuples travel as lists."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from .draw import Drawn, Still
from .fonts import Faces
from .layout import Box
from .script import Line, Picture, Scene
from .sfnt import FontFile


def scene_of(raw: list[Any]) -> Scene:
    """Restore a scene from JSON."""
    scene = Scene(*raw)
    picture = None if scene.picture is None else Picture(*scene.picture)
    return scene._replace(lines=tuple(Line(*line) for line in scene.lines), picture=picture)


def faces_of(raw: list[Any]) -> Faces:
    """Restore faces from JSON."""
    plain, bold = (tuple(_font(one) for one in fonts) for fonts in raw)
    return Faces(plain, bold)


def layers_of(raw: list[Any]) -> Drawn:
    """Restore a scene's layers from JSON."""
    layers = Drawn(*raw)
    stills = tuple(Still(*still) for still in layers.stills)
    return layers._replace(stills=stills, box=None if layers.box is None else Box(*layers.box))


def faces_as_json(faces: Faces) -> list[list[list[Any]]]:
    """Convert faces to JSON for `faces_of`."""
    return [[list(astuple(font)) for font in fonts] for fonts in faces]


def _font(raw: list[Any]) -> FontFile:
    path, number, family, style, is_colour, is_variable, starts, ends = raw
    return FontFile(path, number, family, style, is_colour, is_variable, tuple(starts), tuple(ends))
