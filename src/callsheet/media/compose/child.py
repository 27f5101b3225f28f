"""The child process: `python -I -S child.py packages verb`, an order as JSON on stdin, answers as JSON lines on stdout.

It speaks, draws and paints inside the sandbox: its pictures may be hostile, and its libraries may crash.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main(packages: str, verb: str) -> None:
    """Carry out one order."""
    sys.path += packages.split(os.pathsep)
    from callsheet.media.compose.errors import ComposeError  # noqa: PLC0415 - found in the folders above

    order = json.load(sys.stdin)
    try:
        for answer in VERBS[verb](order):
            tell(answer)
    except ComposeError as error:
        tell({"error": error.code, "text": str(error)})


def tell(answer: dict[str, Any]) -> None:
    """Write one JSON line to the parent."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def look(order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Open each picture, and yield its size or the reason against it."""
    from callsheet.media.compose.draw import open_picture  # noqa: PLC0415
    from callsheet.media.compose.errors import PictureRefused  # noqa: PLC0415

    for reference, path in order["pictures"].items():
        try:
            with open_picture(Path(path)) as picture:
                yield {"picture": reference, "size": picture.size}
        except PictureRefused as error:
            yield {"picture": reference, "refused": str(error)}


def speak(order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Write each scene's WAV, and yield its times."""
    from callsheet.media.compose.speech import speak_scene, voice  # noqa: PLC0415

    engine = voice(order)
    for scene in order["scenes"]:
        yield speak_scene(engine, scene, order)


def draw(order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Draw each scene's layers, and yield their records."""
    from callsheet.media.compose.draw import (  # noqa: PLC0415
        draw_scene,
        faces_of,
        scene_of,
    )
    from callsheet.media.compose.script import Settings  # noqa: PLC0415

    settings, faces, folder = Settings(**order["settings"]), faces_of(order["faces"]), Path(order["folder"])
    for one in order["scenes"]:
        scene = scene_of(one["scene"])
        source = Path(one["picture"]) if one["picture"] else None
        yield {"scene": one["number"], "drawn": draw_scene(one["number"], scene, settings, faces, (folder, source))}


def paint(order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Write all frames into a pipe, and one frame as the poster."""
    from callsheet.media.compose.paint import paint_all  # noqa: PLC0415

    yield {"frames": paint_all(order)}


VERBS = {"look": look, "speak": speak, "draw": draw, "paint": paint}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
