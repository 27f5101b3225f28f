"""The voice: it makes sound of a plausible length, says when each word comes, and never fails without a word."""

from __future__ import annotations

import asyncio
import wave
from pathlib import Path

import numpy as np
import pytest

from callsheet.media.compose import voice
from callsheet.media.compose.errors import UnknownLanguage
from callsheet.media.compose.markdown import parse
from callsheet.media.compose.running import Means
from callsheet.media.compose.sound import Part, duration_of, join
from callsheet.media.compose.speech import NoVoice
from callsheet.media.compose.voice import language_of
from callsheet.media.errors import MediaStopped
from callsheet.sandbox.processes import start_alone
from tests.compose.conftest import MEANS

SPOKEN = (
    "## A\nThe quick brown fox jumps over the lazy dog. It does so again.\n## B\nHallo Welt.\n<!-- language: de -->"
)


def loudness(path: Path) -> float:
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return float(np.sqrt(np.mean(samples.astype(float) ** 2)))


async def test_every_scene_is_spoken_with_the_times_of_its_words(tmp_path: Path) -> None:
    seen: list[int] = []
    narration = await voice.speak(parse(SPOKEN), tmp_path, MEANS, seen.append)
    first, second = narration.scenes
    assert (seen, narration.warnings, first.is_speech) == ([1, 2], (), True)
    assert loudness(tmp_path / first.file) > 500
    assert 2.5 < duration_of(tmp_path / first.file) < 8
    assert 0.4 < duration_of(tmp_path / second.file) < 3
    message, again = first.lines
    text = "The quick brown fox jumps over the lazy dog."
    assert [text[offset:].partition(" ")[0] for offset, _ in message.words] == text.split()
    times = [at for _, at in message.words]
    assert times == sorted(times)
    assert message.start_ms <= times[0]
    assert times[-1] < message.end_ms < again.start_ms
    assert message.at_ms(text.index("fox")) == times[3]


async def test_without_a_voice_there_are_tones_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> tuple[str, str]:
        raise NoVoice("espeak-ng is not installed")

    monkeypatch.setattr(voice, "voice_library", none)
    narration = await voice.speak(parse(SPOKEN), tmp_path, MEANS)
    assert [scene.is_speech for scene in narration.scenes] == [False, False]
    assert narration.warnings == ("the video has tones and captions instead of a voice: espeak-ng is not installed",)
    assert loudness(tmp_path / narration.scenes[0].file) > 50
    assert 3 < duration_of(tmp_path / narration.scenes[0].file) < 10


async def test_a_voice_that_cannot_be_loaded_is_no_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libbroken.so").write_bytes(b"no library")
    monkeypatch.setattr(voice, "voice_library", lambda: (str(tmp_path / "libbroken.so"), ""))
    narration = await voice.speak(parse(SPOKEN), tmp_path, MEANS)
    assert not any(scene.is_speech for scene in narration.scenes)
    assert "cannot be loaded" in narration.warnings[0]


async def test_tones_that_were_asked_for_are_no_surprise(tmp_path: Path) -> None:
    narration = await voice.speak(parse(f"---\nvoice: tone\n---\n{SPOKEN}"), tmp_path, MEANS)
    assert not narration.warnings
    assert not narration.scenes[0].is_speech


async def test_a_voice_that_dies_costs_one_scene(tmp_path: Path) -> None:
    """The first process is killed before it says anything: its first scene gets tones, the second is spoken."""
    count = 0

    async def start(program: str, *args: str, **options: object) -> asyncio.subprocess.Process:
        nonlocal count
        count += 1
        process = await start_alone(program, *args, **options)
        if count == 1:
            process.kill()
        return process

    narration = await voice.speak(parse(SPOKEN), tmp_path, Means(start, nice=0))
    assert [scene.is_speech for scene in narration.scenes] == [False, True]
    assert narration.warnings[0].startswith("1 of 2 scenes have tones and captions instead of a voice: the voice died")


async def test_a_language_that_nobody_speaks_is_an_error_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UnknownLanguage, match="no voice speaks 'xx'; known are af, am"):
        await voice.speak(parse("---\nlanguage: xx\n---\n## A\nHello."), tmp_path, MEANS)


async def test_told_to_stop_it_speaks_no_word(tmp_path: Path) -> None:
    with pytest.raises(MediaStopped):
        await voice.speak(parse(SPOKEN), tmp_path, Means(is_stopped=lambda: True))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "wanted", "language"),
    [
        ("Hello", "", "en"),
        ("مرحبا", "", "ar"),
        ("你好", "", "cmn"),
        ("こんにちは世界", "", "ja"),
        ("Привет", "", "ru"),
        ("Bonjour", "fr", "fr"),
        ("42", "", "en"),
        ("你好", "zh-cn", "cmn"),
    ],
)
def test_the_language_is_the_one_asked_for_or_that_of_the_letters(text: str, wanted: str, language: str) -> None:
    assert language_of(text, wanted) == language


async def test_sound_is_joined_at_its_times_and_at_one_loudness(tmp_path: Path) -> None:
    narration = await voice.speak(parse(SPOKEN), tmp_path, MEANS)
    parts = [Part(tmp_path / scene.file, at) for scene, at in zip(narration.scenes, (0.5, 8.0), strict=True)]
    join(parts, 12.0, tmp_path / "whole.wav")
    assert duration_of(tmp_path / "whole.wav") == pytest.approx(12.0, abs=0.001)
    with wave.open(str(tmp_path / "whole.wav")) as file:
        rate_hz = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(float) / 32768
    assert not samples[: int(0.5 * rate_hz)].any()
    assert np.abs(samples).max() <= 0.841
    spoken = samples[int(0.5 * rate_hz) : int(2.5 * rate_hz)]
    assert -19 < 10 * np.log10(np.mean(spoken**2)) < -13
