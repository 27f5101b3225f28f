"""The Voice stage: a WAV for each scene, with sentence and word times. Tones replace a missing voice.

`language_of` guesses a text's language from its letters, in the codes of espeak-ng.
"""

from __future__ import annotations

import asyncio
import os
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from callsheet.sandbox.command import Sight

from .errors import ChildFailed
from .running import KINDS, Means, Order, run_order
from .script import Scene, Script
from .speech import NoVoice, VoiceGone, place_of

OF_SCRIPT = {
    "ARABIC": "ar",
    "ARMENIAN": "hy",
    "BENGALI": "bn",
    "CJK": "cmn",
    "CYRILLIC": "ru",
    "DEVANAGARI": "hi",
    "ETHIOPIC": "am",
    "GEORGIAN": "ka",
    "GREEK": "el",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "HANGUL": "ko",
    "HEBREW": "he",
    "HIRAGANA": "ja",
    "KANNADA": "kn",
    "KATAKANA": "ja",
    "LATIN": "en",
    "MALAYALAM": "ml",
    "MYANMAR": "my",
    "SINHALA": "si",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
}
# common codes, and espeak-ng's names for them
OTHER_NAMES = {"zh": "cmn", "zh-cn": "cmn", "zh-hans": "cmn", "zh-tw": "cmn", "zh-hant": "cmn", "nb": "nb", "iw": "he"}
OTHER_NAMES |= {"en-uk": "en-gb", "pt-pt": "pt", "es-mx": "es-419", "zh-hk": "yue"}

KINDS[VoiceGone.code] = VoiceGone
NO_VOICE = "CALLSHEET_NO_VOICE"  # any value disables the voice


def language_of(text: str, language: str = "") -> str:
    """Return the requested language, or a guess from the letters: Latin letters count as English."""
    if language:
        return OTHER_NAMES.get(language, language)
    scripts = Counter(unicodedata.name(one, "").partition(" ")[0] for one in text if one.isalpha())
    if scripts["HIRAGANA"] or scripts["KATAKANA"]:
        return "ja"
    for script, _ in scripts.most_common():
        if script in OF_SCRIPT:
            return OF_SCRIPT[script]
    return "en"


class SpokenLine(NamedTuple):
    """One spoken sentence, in milliseconds of its scene's sound; `words` are (offset in the text, at_ms)."""

    start_ms: int
    end_ms: int
    words: tuple[tuple[int, int], ...]

    def at_ms(self, offset: int) -> int:
        """Return when the word at this offset begins, or the nearest word before it."""
        before = [at for place, at in self.words if place <= offset]
        return max(before, default=self.start_ms) if offset else self.start_ms


class SceneSound(NamedTuple):
    """A scene's sound. `is_speech` is False for tones."""

    scene: int
    file: str
    lines: tuple[SpokenLine, ...]
    is_speech: bool


class Narration(NamedTuple):
    """All scenes' sounds, in order, and warnings for the user."""

    scenes: tuple[SceneSound, ...]
    warnings: tuple[str, ...] = ()


async def speak(
    script: Script, folder: Path, means: Means, on_scene: Callable[[int], object] = lambda _: None
) -> Narration:
    """Make every scene's WAV in a folder. Raises UnknownLanguage, ChildFailed, MediaStopped."""
    orders = {number: _order(number, scene, script) for number, scene in enumerate(script.scenes)}
    sounds: dict[int, SceneSound] = {}
    warnings: list[str] = []

    def take(answer: dict[str, Any], *, is_speech: bool) -> None:
        sounds[answer["scene"]] = scene_sound_of([answer["scene"], answer["file"], answer["said"], is_speech])
        on_scene(len(sounds))

    why = await _speak_all(script, orders, (folder, means), lambda answer: take(answer, is_speech=True))
    remaining_orders = [order for number, order in orders.items() if number not in sounds]
    if remaining_orders:
        if script.settings.voice != "tone":
            part = (
                "the video has"
                if len(remaining_orders) == len(orders)
                else f"{len(remaining_orders)} of {len(orders)} scenes have"
            )
            warnings.append(f"{part} tones and captions instead of a voice: {why}")
        facts = _facts(script, remaining_orders, folder, ("", ""))
        order = Order("speak", facts, Sight(write=(folder,)))
        await run_order(order, means, lambda answer: take(answer, is_speech=False))
    return Narration(tuple(sounds[number] for number in sorted(sounds)), tuple(warnings))


def scene_sound_of(raw: list[Any]) -> SceneSound:
    """Restore a scene's sound from JSON."""
    scene, file, raw_lines, is_speech = raw
    lines = []
    for one in raw_lines:
        start, end, words = one.values() if isinstance(one, dict) else one
        lines.append(SpokenLine(start, end, tuple((place, at) for place, at in words)))
    return SceneSound(scene, file, tuple(lines), is_speech)


async def _speak_all(
    script: Script,
    orders: dict[int, dict[str, Any]],
    places: tuple[Path, Means],
    take: Callable[[dict[str, Any]], object],
) -> str:
    """Speak all scenes; return the reason if some remain silent. A crash costs only its own scene."""
    folder, means = places
    if script.settings.voice == "tone":
        return "tones were requested"
    try:
        library = await asyncio.to_thread(voice_library)
    except NoVoice as error:
        return str(error)
    done_scenes: set[int] = set()
    skipped_scenes: set[int] = set()
    why = ""

    def on_answer(answer: dict[str, Any]) -> None:
        done_scenes.add(answer["scene"])
        take(answer)

    while remaining_orders := [order for number, order in orders.items() if number not in done_scenes | skipped_scenes]:
        sight = Sight(tuple(Path(place) for place in library if os.path.isabs(place)), (folder,))  # noqa: PTH117
        try:
            await run_order(Order("speak", _facts(script, remaining_orders, folder, library), sight), means, on_answer)
        except VoiceGone as error:
            return str(error)
        except ChildFailed as error:
            why = f"the voice died: {error}"
            skipped_scenes.add(
                next(order["number"] for order in remaining_orders if order["number"] not in done_scenes)
            )
    return why


@cache
def voice_library() -> tuple[str, str]:
    """Return the paths of the voice's library and data. Raises NoVoice."""
    if os.environ.get(NO_VOICE):
        raise NoVoice(f"{NO_VOICE} is set")
    return place_of()


def _order(number: int, scene: Scene, script: Script) -> dict[str, Any]:
    language = language_of(" ".join(scene.narration_texts), scene.language or script.settings.language)
    return {"number": number, "texts": scene.narration_texts, "language": language, "file": f"scene{number:03}.wav"}


def _facts(script: Script, scenes: list[dict[str, Any]], folder: Path, library: tuple[str, str]) -> dict[str, Any]:
    return {
        "scenes": scenes,
        "folder": str(folder),
        "library": library[0],
        "data": library[1],
        "words_per_minute": script.settings.words_per_minute,
    }
