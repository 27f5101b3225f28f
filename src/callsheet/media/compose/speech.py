"""The child's part of the voice: speak a scene into one WAV, sentence by sentence, with word times.

espeak-ng is called through ctypes: text in, samples and word times out. The library keeps its state in globals and has
crashed on odd text before, so it never runs in a worker. Without a voice, each sentence is a soft tone, and its words
follow at reading speed.
"""

from __future__ import annotations

import array
import ctypes
import ctypes.util
import math
import wave
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .errors import ComposeError, UnknownLanguage
from .sentences import is_wide

PAUSE_S = 0.38
SHORTEST_S = 0.05

RATE_HZ = 22_050
NOTES_HZ = (392.0, 440.0, 523.25, 440.0)
TONE_S = 0.9
LOUDNESS = 3_500
SIGNS_PER_WORD = 2.2
LEAST_S = 1.2

SYNCHRONOUS = 2
DO_NOT_EXIT = 0x8000
UTF8 = 1
RATE, VOLUME, PITCH, WORD_GAP = 1, 2, 3, 7
EVENT_END, EVENT_WORD = 0, 1
BUFFER_MS = 200
CHARACTERS = 1
CONTINUE = 0


class VoiceGone(ComposeError):
    """espeak-ng failed, at startup or later. Tones must replace the voice."""

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


def tone(text: str, number: int, words_per_minute: int) -> tuple[bytes, list[Word]]:
    """Return 16-bit mono samples, a fading tone and then silence, and the words' times."""
    offsets = _word_offsets(text)
    step_s = 60 / words_per_minute
    length_s = max(LEAST_S, len(offsets) * step_s)
    pitch = NOTES_HZ[number % len(NOTES_HZ)]
    samples = array.array("h", bytes(2 * int(RATE_HZ * length_s)))
    for at in range(min(len(samples), int(RATE_HZ * TONE_S))):
        time_s = at / RATE_HZ
        shape = min(1.0, time_s / 0.03) * math.exp(-4.5 * time_s) * min(1.0, (TONE_S - time_s) / 0.1)
        wave = math.sin(2 * math.pi * pitch * time_s) + 0.25 * math.sin(4 * math.pi * pitch * time_s)
        samples[at] = round(LOUDNESS * shape * wave)
    return samples.tobytes(), [Word(offset, round(1000 * n * step_s)) for n, offset in enumerate(offsets)]


def _word_offsets(text: str) -> list[int]:
    if is_wide(text):
        return [int(at * SIGNS_PER_WORD) for at in range(max(1, int(len(text) / SIGNS_PER_WORD)))]
    starts = [at for at, one in enumerate(text) if not one.isspace() and (at == 0 or text[at - 1].isspace())]
    return starts or [0]


class NoVoice(Exception):
    """espeak-ng is not installed, or does not start."""


class NoSuchVoice(Exception):
    """espeak-ng has no voice for the language."""


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    )


class _Voice(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.POINTER(ctypes.c_char)),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


class Word(NamedTuple):
    """A word's offset in its text, in characters, and its time in milliseconds of the sound."""

    offset: int
    at_ms: int


class Espeak:
    """The initialized library. One process may hold one instance."""

    def __init__(self, library: str, data: str = "") -> None:
        self._pcm = bytearray()
        self._words: list[Word] = []
        try:
            self._lib = ctypes.CDLL(library)
        except OSError as error:
            raise NoVoice(f"{library} cannot be loaded: {error}") from None
        place = data.encode() or None
        self.rate_hz: int = self._lib.espeak_Initialize(SYNCHRONOUS, BUFFER_MS, place, DO_NOT_EXIT)
        if self.rate_hz <= 0:
            raise NoVoice("espeak-ng does not start: its data is missing")
        self._callback = _CALLBACK(self._take)  # a reference, or it would be collected while the library calls it
        self._lib.espeak_SetSynthCallback(self._callback)
        self._lib.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_Voice))
        self.voices = self._voices()

    def choose(self, language: str, words_per_minute: int) -> None:
        """Set the language, or the broader language it belongs to; and the speed. Raises NoSuchVoice."""
        code = language.lower()
        while code not in self.voices and "-" in code:
            code = code.rpartition("-")[0]
        voice = self.voices.get(code, b"")
        if not voice or self._lib.espeak_SetVoiceByName(voice) != 0:
            raise NoSuchVoice(language)
        for parameter, value in ((RATE, words_per_minute), (VOLUME, 100), (PITCH, 46), (WORD_GAP, 0)):
            self._lib.espeak_SetParameter(parameter, value, 0)

    def say(self, text: str) -> tuple[bytes, list[Word]]:
        """Return 16-bit mono samples, and the words in order. Raises NoVoice."""
        self._pcm, self._words = bytearray(), []
        raw = text.replace("\0", " ").encode() + b"\0"
        code = self._lib.espeak_Synth(raw, ctypes.c_size_t(len(raw)), 0, CHARACTERS, 0, UTF8, None, None)
        if code != 0 or self._lib.espeak_Synchronize() != 0:
            raise NoVoice(f"espeak-ng failed with {code}")
        return bytes(self._pcm), self._words

    def _voices(self) -> dict[str, bytes]:
        """Return the best voice for each language, with language codes in lower case."""
        best_by_language: dict[str, tuple[int, bytes]] = {}
        voices = self._lib.espeak_ListVoices(None)
        at = 0
        while voices[at]:
            voice = voices[at].contents
            at += 1
            place = 0
            while priority := voice.languages[place][0]:  # a byte, a name that ends with 0, and so on; then 0
                name = ctypes.string_at(ctypes.addressof(voice.languages.contents) + place + 1)
                key = name.decode("ascii", "replace").lower()
                if key not in best_by_language or priority < best_by_language[key][0]:
                    best_by_language[key] = (priority, voice.identifier)
                place += len(name) + 2
        return {language: identifier for language, (_, identifier) in best_by_language.items()}

    def _take(self, samples: ctypes._Pointer[ctypes.c_short], count: int, events: ctypes._Pointer[_Event]) -> int:
        at = 0
        while events[at].type != EVENT_END:
            if events[at].type == EVENT_WORD:
                self._words.append(Word(max(0, events[at].text_position - 1), max(0, events[at].audio_position)))
            at += 1
        if count > 0:
            self._pcm += ctypes.string_at(samples, count * 2)
        return CONTINUE


def place_of() -> tuple[str, str]:
    """Return the library and its data: the system's, else those of the wheel. Raises NoVoice."""
    system = ctypes.util.find_library("espeak-ng")
    if system:
        return system, ""
    try:
        wheel = import_module("espeakng_loader")  # an optional part, and without types
    except ImportError:
        raise NoVoice("espeak-ng is not installed; pip install espeakng-loader, or apt install espeak-ng") from None
    return str(wheel.get_library_path()), str(wheel.get_data_path())
