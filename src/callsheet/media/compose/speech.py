"""The child's part of the voice: speak a scene into one WAV, sentence by sentence, with word times."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

from .errors import ComposeError, UnknownLanguage
from .espeak import Espeak, NoSuchVoice, NoVoice, Word
from .tone import RATE_HZ, tone

PAUSE_S = 0.38
SHORTEST_S = 0.05


class VoiceGone(ComposeError):
    """The voice does not start or has failed; tones must replace it."""

    code = "voice_gone"


def voice(order: dict[str, Any]) -> Espeak | None:
    """Return the voice, or None if tones were requested. Raises VoiceGone."""
    if not order["library"]:
        return None
    try:
        return Espeak(order["library"], order["data"])
    except NoVoice as error:
        raise VoiceGone(str(error)) from None


def speak_scene(engine: Espeak | None, scene: dict[str, Any], order: dict[str, Any]) -> dict[str, Any]:
    """Write a scene's WAV; return its sentences' times in milliseconds. Raises UnknownLanguage or VoiceGone."""
    rate_hz = RATE_HZ if engine is None else engine.rate_hz
    if engine is not None:
        try:
            engine.choose(scene["language"], order["words_per_minute"])
        except NoSuchVoice:
            languages = ", ".join(sorted(engine.voices))
            raise UnknownLanguage(f"no voice speaks {scene['language']!r}; known are {languages}") from None
    sound, sentences = bytearray(), []
    for number, text in enumerate(scene["texts"]):
        if number:
            sound += bytes(2 * int(rate_hz * PAUSE_S))
        start_ms = round(len(sound) / 2 / rate_hz * 1000)
        pcm, words = _one(engine, text, number, order)
        sound += pcm
        end_ms = round(len(sound) / 2 / rate_hz * 1000)
        sentences.append(
            {"start_ms": start_ms, "end_ms": end_ms, "words": [(w.offset, start_ms + w.at_ms) for w in words]}
        )
    _write(Path(order["folder"]) / scene["file"], bytes(sound), rate_hz)
    return {"scene": scene["number"], "file": scene["file"], "said": sentences}


def _one(engine: Espeak | None, text: str, number: int, order: dict[str, Any]) -> tuple[bytes, list[Word]]:
    """Return one sentence's sound. Text without sound, such as a line of dashes, gets a second of silence."""
    if engine is None:
        return tone(text, number, order["words_per_minute"])
    try:
        pcm, words = engine.say(text)
    except NoVoice as error:
        raise VoiceGone(str(error)) from None
    if len(pcm) < 2 * engine.rate_hz * SHORTEST_S:
        return bytes(2 * engine.rate_hz), [Word(0, 0)]
    return pcm, words


def _write(path: Path, pcm: bytes, rate_hz: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(pcm)
