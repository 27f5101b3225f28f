"""A script as records: a title, scenes, and how they are to look and sound. Made by `markdown.parse`."""

from __future__ import annotations

from typing import NamedTuple

MAX_SCRIPT_BYTES = 200_000
MAX_SCENES = 200
MAX_SCENE_CHARS = 6_000
MAX_HEADING_CHARS = 120
MAX_TITLE_CHARS = 160
MIN_SIDE, MAX_SIDE = 180, 3840
MAX_PIXELS = 3840 * 2160
SIDE_BY_SIDE = 1.3
FRAME_RATES = (24, 25, 30, 50, 60)
THEMES = ("dark", "light")
LAYOUTS = ("auto", "split", "full")
VOICES = ("auto", "tone")


class Line(NamedTuple):
    """One sentence, or one item of a list: shown and spoken as one."""

    text: str
    is_item: bool = False
    starts_paragraph: bool = False


class Picture(NamedTuple):
    """A picture as the script names it: `object:key` or a path."""

    reference: str
    text: str = ""
    line: int = 0


class Scene(NamedTuple):
    """One scene. The title card is one too, with `is_title`. `duration_s` is the least that it lasts; 0 for any."""

    heading: str
    lines: tuple[Line, ...] = ()
    picture: Picture | None = None
    duration_s: float = 0.0
    theme: str = ""
    layout: str = "auto"
    language: str = ""
    is_title: bool = False

    @property
    def spoken(self) -> tuple[str, ...]:
        """What the voice says: of the title card its title too, of a scene without text its heading."""
        lines = tuple(line.text for line in self.lines)
        return (self.heading, *lines) if self.is_title or not lines else lines


class Settings(NamedTuple):
    """How the whole is to be: from the front matter, or given by the caller."""

    width: int = 1280
    height: int = 720
    fps: int = 30
    theme: str = "dark"
    accent: str = ""
    language: str = ""
    voice: str = "auto"
    words_per_minute: int = 165

    @property
    def unit(self) -> float:
        """One pixel of a design whose shorter side is 720 and whose longer side is at least 1080."""
        return min(min(self.width, self.height) / 720, max(self.width, self.height) / 1080)

    @property
    def is_stacked(self) -> bool:
        """Whether pictures stand over the text: the screen is not wide enough for both side by side."""
        return self.width < SIDE_BY_SIDE * self.height


class Script(NamedTuple):
    """A whole script. `scenes` begins with the title card when there is a title."""

    title: str
    scenes: tuple[Scene, ...]
    settings: Settings

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Each picture once."""
        found = {scene.picture.reference: scene.picture for scene in self.scenes if scene.picture is not None}
        return tuple(found.values())

    @property
    def texts(self) -> tuple[str, ...]:
        """All that is drawn."""
        return tuple(text for scene in self.scenes for text in (scene.heading, *(line.text for line in scene.lines)))
