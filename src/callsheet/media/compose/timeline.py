"""The video's timeline: scenes in sequence, each text state with its words, captions, the poster.

All times are whole frames, so that drawings, speech and captions agree.

`web_vtt` writes the captions as WebVTT.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from .draw import Drawn
from .errors import ScriptTooLarge
from .script import Scene, Script
from .sentences import pieces
from .voice import Narration, SceneSound, SpokenLine

LEAD_S = 0.6
TAIL_S = 0.6
LAST_S = 1.2
CROSS_S = 0.7
APPEAR_S = 0.3
LEAST_S = 2.5
MAX_VIDEO_S = 2 * 3600.0
CAPTION_CHARS = 84
CAPTION_AFTER_S = 0.15

ROW_CHARS = 44


class Cue(NamedTuple):
    """A caption, in milliseconds of the video."""

    start_ms: int
    end_ms: int
    text: str


class Shot(NamedTuple):
    """One scene: from frame `start` until `end`, exclusive; `states` are the frames at which its stills appear."""

    start: int
    end: int
    voice_ms: int
    states: tuple[int, ...]


class Timeline(NamedTuple):
    """The timeline of the whole video."""

    fps: int
    shots: tuple[Shot, ...]
    cues: tuple[Cue, ...]

    @property
    def frames(self) -> int:
        """The number of frames."""
        return self.shots[-1].end

    @property
    def duration_s(self) -> float:
        """The video's duration."""
        return self.frames / self.fps

    @property
    def poster_frame(self) -> int:
        """A frame that shows the first scene's whole text."""
        return max(self.shots[0].states[-1] + round(APPEAR_S * self.fps) + 1, self.shots[0].start + self.fps)


def arrange(script: Script, narration: Narration, layers_by_scene: tuple[Drawn, ...]) -> Timeline:
    """Put the scenes in sequence. Raises ScriptTooLarge if the video would be too long."""
    fps = script.settings.fps
    shots: list[Shot] = []
    cues: list[Cue] = []
    start = 0
    for number, (scene, sound, layers) in enumerate(zip(script.scenes, narration.scenes, layers_by_scene, strict=True)):
        last = number == len(layers_by_scene) - 1
        shot = _shot(scene, sound, layers, (start, fps, TAIL_S + LAST_S if last else TAIL_S))
        cues += _cues(scene, sound, shot, fps)
        shots.append(shot)
        start = shot.end
    if start / fps > MAX_VIDEO_S:
        raise ScriptTooLarge(
            f"the video would last {start / fps / 60:.0f} minutes, and {MAX_VIDEO_S / 60:.0f} are the most"
        )
    return Timeline(fps, tuple(shots), tuple(cues))


def _shot(scene: Scene, sound: SceneSound, layers: Drawn, place: tuple[int, int, float]) -> Shot:
    start, fps, tail_s = place
    voice_ms = round((start / fps + LEAD_S) * 1000)
    length_s = max(LEAD_S + sound.lines[-1].end_ms / 1000 + tail_s, scene.duration_s, LEAST_S)
    end = start + math.ceil(length_s * fps)
    appear = round(APPEAR_S * fps)
    states: list[int] = []
    for still in layers.stills:
        at_ms = 0 if still.line < 0 else _spoken_line(scene, sound, still.line).at_ms(still.offset)
        at = start if still.line < 0 else round((voice_ms + at_ms) / 1000 * fps) - appear // 2
        states.append(min(end - 1, max(at, states[-1] + 1 if states else start)))
    return Shot(start, end, voice_ms, tuple(states))


def _spoken_line(scene: Scene, sound: SceneSound, line: int) -> SpokenLine:
    """Return the times of a line: on a title card the voice speaks the title before the lines."""
    return sound.lines[line + 1 if scene.is_title else line]


def _cues(scene: Scene, sound: SceneSound, shot: Shot, fps: int) -> list[Cue]:
    starts: list[tuple[int, str, int]] = []
    for text, spoken_line in zip(scene.narration_texts, sound.lines, strict=True):
        for offset, piece in pieces(text, CAPTION_CHARS):
            starts.append((shot.voice_ms + spoken_line.at_ms(offset), piece, shot.voice_ms + spoken_line.end_ms))
    most_ms = math.floor(shot.end / fps * 1000)
    cues: list[Cue] = []
    for at, (start_ms, piece, line_end_ms) in enumerate(starts):
        following = starts[at + 1][0] if at + 1 < len(starts) else most_ms
        end_ms = min(following, line_end_ms + round(CAPTION_AFTER_S * 1000), most_ms)
        cues.append(Cue(start_ms, max(end_ms, start_ms + 1), piece))
    return cues


def web_vtt(cues: Iterable[Cue], language: str = "") -> str:
    """Return the whole WebVTT file."""
    head = f"WEBVTT\nLanguage: {language}\n" if language else "WEBVTT\n"
    return head + "".join(f"\n{number}\n{_cue(cue)}\n" for number, cue in enumerate(cues, 1))


def _cue(cue: Cue) -> str:
    rows = "\n".join(row for _, row in pieces(cue.text, ROW_CHARS))
    safe = rows.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"{_time(cue.start_ms)} --> {_time(cue.end_ms)}\n{safe}"


def _time(ms: int) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{ms:03}"
