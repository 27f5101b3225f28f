"""When everything happens: scenes one after the other, each state of the text with its words, captions, the poster.

All times are whole frames, so that what is drawn, said and written down agrees.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .draw import Drawn
from .errors import ScriptTooLarge
from .script import Scene, Script
from .sentences import pieces
from .voice import Narration, Said, Voiced

LEAD_S = 0.6
TAIL_S = 0.6
LAST_S = 1.2
CROSS_S = 0.7
APPEAR_S = 0.3
LEAST_S = 2.5
MAX_VIDEO_S = 2 * 3600.0
CAPTION_CHARS = 84
CAPTION_AFTER_S = 0.15


class Cue(NamedTuple):
    """A caption, in milliseconds of the video."""

    start_ms: int
    end_ms: int
    text: str


class Shot(NamedTuple):
    """One scene: from frame `start` to before `end`; `states` are the frames at which its stills appear."""

    start: int
    end: int
    voice_ms: int
    states: tuple[int, ...]


class Timeline(NamedTuple):
    """The whole video."""

    fps: int
    shots: tuple[Shot, ...]
    cues: tuple[Cue, ...]

    @property
    def frames(self) -> int:
        """How many frames there are."""
        return self.shots[-1].end

    @property
    def duration_s(self) -> float:
        """How long it lasts."""
        return self.frames / self.fps

    @property
    def poster_frame(self) -> int:
        """A frame with all of the first scene's text on the screen."""
        return max(self.shots[0].states[-1] + round(APPEAR_S * self.fps) + 1, self.shots[0].start + self.fps)


def arrange(script: Script, narration: Narration, drawn: tuple[Drawn, ...]) -> Timeline:
    """Put the scenes in a row; raises ScriptTooLarge when the video would be too long."""
    fps = script.settings.fps
    shots: list[Shot] = []
    cues: list[Cue] = []
    start = 0
    for number, (scene, voiced, layers) in enumerate(zip(script.scenes, narration.scenes, drawn, strict=True)):
        last = number == len(drawn) - 1
        shot = _shot(scene, voiced, layers, (start, fps, TAIL_S + LAST_S if last else TAIL_S))
        cues += _cues(scene, voiced, shot, fps)
        shots.append(shot)
        start = shot.end
    if start / fps > MAX_VIDEO_S:
        raise ScriptTooLarge(
            f"the video would last {start / fps / 60:.0f} minutes, and {MAX_VIDEO_S / 60:.0f} are the most"
        )
    return Timeline(fps, tuple(shots), tuple(cues))


def _shot(scene: Scene, voiced: Voiced, layers: Drawn, place: tuple[int, int, float]) -> Shot:
    start, fps, tail_s = place
    voice_ms = round((start / fps + LEAD_S) * 1000)
    length_s = max(LEAD_S + voiced.said[-1].end_ms / 1000 + tail_s, scene.duration_s, LEAST_S)
    end = start + math.ceil(length_s * fps)
    appear = round(APPEAR_S * fps)
    states: list[int] = []
    for still in layers.stills:
        at_ms = 0 if still.line < 0 else _said(scene, voiced, still.line).at_ms(still.offset)
        at = start if still.line < 0 else round((voice_ms + at_ms) / 1000 * fps) - appear // 2
        states.append(min(end - 1, max(at, states[-1] + 1 if states else start)))
    return Shot(start, end, voice_ms, tuple(states))


def _said(scene: Scene, voiced: Voiced, line: int) -> Said:
    """When a line is said: the voice says the title of a title card before its lines."""
    return voiced.said[line + 1 if scene.is_title else line]


def _cues(scene: Scene, voiced: Voiced, shot: Shot, fps: int) -> list[Cue]:
    starts: list[tuple[int, str, int]] = []
    for text, said in zip(scene.spoken, voiced.said, strict=True):
        for offset, piece in pieces(text, CAPTION_CHARS):
            starts.append((shot.voice_ms + said.at_ms(offset), piece, shot.voice_ms + said.end_ms))
    most_ms = math.floor(shot.end / fps * 1000)
    found: list[Cue] = []
    for at, (start_ms, piece, said_ms) in enumerate(starts):
        following = starts[at + 1][0] if at + 1 < len(starts) else most_ms
        end_ms = min(following, said_ms + round(CAPTION_AFTER_S * 1000), most_ms)
        found.append(Cue(start_ms, max(end_ms, start_ms + 1), piece))
    return found
