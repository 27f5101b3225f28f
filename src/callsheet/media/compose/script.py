"""A script as records: title, scenes, and settings for look and sound. `markdown.parse` makes them."""

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
    """One sentence or list item, shown and spoken as a unit."""

    text: str
    is_item: bool = False
    starts_paragraph: bool = False


class Picture(NamedTuple):
    """A picture reference in the script: `object:key` or a path."""

    reference: str
    text: str = ""
    line: int = 0


class Scene(NamedTuple):
    """One scene. The title card is a scene with `is_title`. `duration_s` is its minimum length; 0 for none."""

    heading: str
    lines: tuple[Line, ...] = ()
    picture: Picture | None = None
    duration_s: float = 0.0
    theme: str = ""
    layout: str = "auto"
    language: str = ""
    is_title: bool = False

    @property
    def narration_texts(self) -> tuple[str, ...]:
        """The spoken texts: a title card's title first; a scene without text speaks its heading."""
        lines = tuple(line.text for line in self.lines)
        return (self.heading, *lines) if self.is_title or not lines else lines


class Settings(NamedTuple):
    """Settings of the whole video, from the front matter or the caller."""

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
        """Whether pictures stand above the text, since the screen is too narrow for both side by side."""
        return self.width < SIDE_BY_SIDE * self.height


class Script(NamedTuple):
    """A whole script. `scenes` begins with the title card if the script has a title."""

    title: str
    scenes: tuple[Scene, ...]
    settings: Settings

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures of all scenes, without duplicates."""
        pictures = {scene.picture.reference: scene.picture for scene in self.scenes if scene.picture is not None}
        return tuple(pictures.values())

    @property
    def texts(self) -> tuple[str, ...]:
        """All drawn texts."""
        return tuple(text for scene in self.scenes for text in (scene.heading, *(line.text for line in scene.lines)))
