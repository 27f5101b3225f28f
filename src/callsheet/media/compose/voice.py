"""The Voice stage: a WAV for each scene, and when each sentence and word is said. Tones where there is no voice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from callsheet.media.sandbox import Sight

from .errors import ChildFailed
from .espeak import NoVoice, place_of
from .languages import language_of
from .running import KINDS, Means, Order, run_child
from .script import Scene, Script
from .speech import VoiceGone

KINDS[VoiceGone.code] = VoiceGone
NO_VOICE = "CALLSHEET_NO_VOICE"  # set to anything: do as if no voice were installed


class Said(NamedTuple):
    """When one sentence is said, in milliseconds of its scene's sound; `words` are (offset in the text, at_ms)."""

    start_ms: int
    end_ms: int
    words: tuple[tuple[int, int], ...]

    def at_ms(self, offset: int) -> int:
        """When the word at this place of the text begins, or the last before it."""
        before = [at for place, at in self.words if place <= offset]
        return max(before, default=self.start_ms) if offset else self.start_ms


class Voiced(NamedTuple):
    """A scene's sound. `is_speech` is False for tones."""

    scene: int
    file: str
    said: tuple[Said, ...]
    is_speech: bool


class Narration(NamedTuple):
    """All of it, in order, and what has to be said about it."""

    scenes: tuple[Voiced, ...]
    warnings: tuple[str, ...] = ()


async def speak(
    script: Script, folder: Path, means: Means, on_scene: Callable[[int], object] = lambda _: None
) -> Narration:
    """Make every scene's WAV in a folder; raises UnknownLanguage, ChildFailed, MediaStopped."""
    wanted = {number: _order(number, scene, script) for number, scene in enumerate(script.scenes)}
    found: dict[int, Voiced] = {}
    warnings: list[str] = []

    def take(answer: dict[str, Any], *, is_speech: bool) -> None:
        found[answer["scene"]] = voiced_of([answer["scene"], answer["file"], answer["said"], is_speech])
        on_scene(len(found))

    why = await _spoken(script, wanted, (folder, means), lambda answer: take(answer, is_speech=True))
    left = [order for number, order in wanted.items() if number not in found]
    if left:
        if script.settings.voice != "tone":
            part = "the video has" if len(left) == len(wanted) else f"{len(left)} of {len(wanted)} scenes have"
            warnings.append(f"{part} tones and captions instead of a voice: {why}")
        facts = _facts(script, left, folder, ("", ""))
        order = Order("speak", facts, Sight(write=(folder,)))
        await run_child(order, means, lambda answer: take(answer, is_speech=False))
    return Narration(tuple(found[number] for number in sorted(found)), tuple(warnings))


def voiced_of(raw: list[Any]) -> Voiced:
    """A scene's sound that was written as JSON."""
    scene, file, said, is_speech = raw
    lines = []
    for one in said:
        start, end, words = one.values() if isinstance(one, dict) else one
        lines.append(Said(start, end, tuple((place, at) for place, at in words)))
    return Voiced(scene, file, tuple(lines), is_speech)


async def _spoken(
    script: Script,
    wanted: dict[int, dict[str, Any]],
    places: tuple[Path, Means],
    take: Callable[[dict[str, Any]], object],
) -> str:
    """Speak what can be spoken; why something is left, if it is. A crash costs the scene that it happened in."""
    folder, means = places
    if script.settings.voice == "tone":
        return "tones were asked for"
    try:
        library = await asyncio.to_thread(installed)
    except NoVoice as error:
        return str(error)
    done: set[int] = set()
    skipped: set[int] = set()
    why = ""

    def told(answer: dict[str, Any]) -> None:
        done.add(answer["scene"])
        take(answer)

    while left := [order for number, order in wanted.items() if number not in done | skipped]:
        sight = Sight(tuple(Path(place) for place in library if os.path.isabs(place)), (folder,))  # noqa: PTH117
        try:
            await run_child(Order("speak", _facts(script, left, folder, library), sight), means, told)
        except VoiceGone as error:
            return str(error)
        except ChildFailed as error:
            why = f"the voice died: {error}"
            skipped.add(next(order["number"] for order in left if order["number"] not in done))
    return why


@cache
def installed() -> tuple[str, str]:
    """The library and its data; raises NoVoice."""
    if os.environ.get(NO_VOICE):
        raise NoVoice(f"{NO_VOICE} is set")
    return place_of()


def _order(number: int, scene: Scene, script: Script) -> dict[str, Any]:
    language = language_of(" ".join(scene.spoken), scene.language or script.settings.language)
    return {"number": number, "texts": scene.spoken, "language": language, "file": f"scene{number:03}.wav"}


def _facts(script: Script, scenes: list[dict[str, Any]], folder: Path, library: tuple[str, str]) -> dict[str, Any]:
    return {
        "scenes": scenes,
        "folder": str(folder),
        "library": library[0],
        "data": library[1],
        "words_per_minute": script.settings.words_per_minute,
    }
