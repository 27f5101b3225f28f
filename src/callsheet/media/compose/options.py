"""Settings inside a script: `key: value` in the front matter, and `<!-- key: value; … -->` in a scene."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from .errors import InvalidScript
from .script import FRAME_RATES, LAYOUTS, MAX_PIXELS, MAX_SIDE, MIN_SIDE, THEMES, VOICES, Scene, Settings

T = TypeVar("T")
LONGEST_SCENE_S = 600.0
SLOWEST_WPM, FASTEST_WPM = 80, 400
SIZES = {
    "360p": (640, 360),
    "480p": (854, 480),
    "720p": (1280, 720),
    "1080p": (1920, 1080),
    "portrait": (720, 1280),
    "square": (1080, 1080),
}
_SIZE = re.compile(r"(\d{2,5})\s*[x×]\s*(\d{2,5})")
_SECONDS = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s*s?")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,20}){0,4}")
_COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


def change(settings: Settings, line: str, number: int) -> Settings:
    """Apply one line of the front matter. Raises InvalidScript."""
    if not line.strip() or line.lstrip().startswith("#"):
        return settings
    return _change(WHOLE, settings, line, number, "no setting")


def change_scene(scene: Scene, text: str, number: int) -> Scene:
    """Apply the settings of a comment; a comment without a colon has none. Raises InvalidScript."""
    for part in text.split(";"):
        if ":" in part:
            scene = _change(OF_SCENE, scene, part, number, "no setting of a scene")
    return scene


def _change(changes: dict[str, Callable[[T, str], T]], target: T, text: str, number: int, why_unknown: str) -> T:
    key, value = _pair(text, number)
    if key not in changes:
        raise InvalidScript(f"line {number}: {key!r} is {why_unknown}; known are {', '.join(sorted(changes))}")
    try:
        return changes[key](target, value)
    except ValueError as error:
        raise InvalidScript(f"line {number}: {key}: {error}") from None


def _pair(text: str, number: int) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon:
        raise InvalidScript(f"line {number}: a setting is written as `name: value`")
    return key.strip().lower(), value.strip().strip("\"'")


def checked_size(width: int, height: int) -> tuple[int, int]:
    """Return a size that encoders accept. Raises ValueError."""
    if not (MIN_SIDE <= width <= MAX_SIDE and MIN_SIDE <= height <= MAX_SIDE and width * height <= MAX_PIXELS):
        raise ValueError(f"sides from {MIN_SIDE} to {MAX_SIDE}, and at most {MAX_PIXELS} pixels")
    if width % 2 or height % 2:
        raise ValueError("both sides have to be even")
    return width, height


def _size(settings: Settings, value: str) -> Settings:
    match = _SIZE.fullmatch(value)
    if value.lower() not in SIZES and not match:
        raise ValueError(f"one of {', '.join(SIZES)}, or such as 1280x720")
    size = SIZES[value.lower()] if match is None else (int(match[1]), int(match[2]))
    width, height = checked_size(*size)
    return settings._replace(width=width, height=height)


def _one_of(value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise ValueError(f"one of {', '.join(choices)}")
    return value.lower()


def _number(value: str, choices: tuple[int, ...] | range, what: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 4 or int(value) not in choices:  # noqa: PLR2004
        raise ValueError(what)
    return int(value)


def _language(value: str) -> str:
    if not _LANGUAGE.fullmatch(value):
        raise ValueError("a code such as en, en-gb or de")
    return value.lower()


def _accent(value: str) -> str:
    if not _COLOUR.fullmatch(value):
        raise ValueError("a colour such as #4f8cff")
    return value.lower()


def _duration(value: str) -> float:
    match = _SECONDS.fullmatch(value)
    if match is None or not 0 < float(match[1]) <= LONGEST_SCENE_S:
        raise ValueError(f"seconds, at most {LONGEST_SCENE_S:g}")
    return float(match[1])


def _fps(settings: Settings, value: str) -> Settings:
    return settings._replace(fps=_number(value, FRAME_RATES, f"one of {', '.join(map(str, FRAME_RATES))}"))


def _rate(settings: Settings, value: str) -> Settings:
    what = f"words a minute, from {SLOWEST_WPM} to {FASTEST_WPM}"
    return settings._replace(words_per_minute=_number(value, range(SLOWEST_WPM, FASTEST_WPM + 1), what))


WHOLE: dict[str, Callable[[Settings, str], Settings]] = {
    "size": _size,
    "fps": _fps,
    "theme": lambda settings, value: settings._replace(theme=_one_of(value, THEMES)),
    "accent": lambda settings, value: settings._replace(accent=_accent(value)),
    "language": lambda settings, value: settings._replace(language=_language(value)),
    "voice": lambda settings, value: settings._replace(voice=_one_of(value, VOICES)),
    "speed": _rate,
}
OF_SCENE: dict[str, Callable[[Scene, str], Scene]] = {
    "duration": lambda scene, value: scene._replace(duration_s=_duration(value)),
    "theme": lambda scene, value: scene._replace(theme=_one_of(value, THEMES)),
    "layout": lambda scene, value: scene._replace(layout=_one_of(value, LAYOUTS)),
    "language": lambda scene, value: scene._replace(language=_language(value)),
}
