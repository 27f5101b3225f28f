"""The Compose and Rendering stages: plan the video, then encode frames and sound into one complete MP4."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from callsheet.media.arguments import PLAIN
from callsheet.media.errors import OutputIncomplete
from callsheet.media.ffmpeg import Ffmpeg, Input, Work, ignore_progress
from callsheet.media.probe import Media, probe
from callsheet.media.progress import Progress
from callsheet.media.spec import OutputSpec, audio_encoder, video_encoder
from callsheet.sandbox.command import Sight

from .draw import Drawn
from .errors import ChildFailed
from .running import Means, Order, run_order
from .script import Script
from .sound import Part, join
from .timeline import APPEAR_S, CROSS_S, Timeline, arrange, web_vtt
from .voice import Narration, language_of

VIDEO, POSTER, CAPTIONS, MANIFEST, SOUND = "video.mp4", "poster.jpg", "captions.vtt", "manifest.json", "sound.wav"
PART = "render.part"
SLACK_S = 0.2
# a short motion search: these videos have little motion. CPU time -36 % for text and -26 % for photographs,
# at the same size and the same PSNR (49.7 and 48.9 dB)
QUALITY = ("-preset", "veryfast", "-crf", "20", "-profile:v", "high", "-x264-params", "subme=1:me=dia:trellis=0")
# as a filter, since ffmpeg 9 takes primaries and transfer from frames alone, whatever -color_trc says
COLOURS = ("-vf", "setparams=range=tv:color_primaries=bt709:color_trc=bt709:colorspace=bt709")
KEY_S = 4
ENCODER_ENDS_S = 60.0  # a safety limit: an encoder that stopped reading has ended, and only its exit code is pending


class Plan(NamedTuple):
    """Everything that `render` needs. `layers` is the folder of the scenes' layers."""

    script: Script
    narration: Narration
    drawn: tuple[Drawn, ...]
    timeline: Timeline
    layers: Path
    sound: Path
    captions: str


class Video(NamedTuple):
    """A finished video. `scenes` are headings with their seconds; `is_speech` is False if tones replace the voice."""

    video: Path
    poster: Path
    captions: Path
    manifest: Path
    duration_s: float
    is_speech: bool
    warnings: tuple[str, ...]
    scenes: tuple[dict[str, Any], ...]


async def plan(script: Script, narration: Narration, drawn: tuple[Drawn, ...], voices: Path, layers: Path) -> Plan:
    """Arrange all scenes in time, and join their sound, in the folder of the voices."""
    timeline = arrange(script, narration, drawn)
    shots = zip(narration.scenes, timeline.shots, strict=True)
    parts = [Part(voices / scene_sound.file, shot.voice_ms / 1000) for scene_sound, shot in shots]
    sound = voices / SOUND
    is_speech = any(scene_sound.is_speech for scene_sound in narration.scenes)
    await asyncio.to_thread(join, parts, timeline.duration_s, sound, even=is_speech)
    language = language_of(" ".join(script.texts), script.settings.language)
    return Plan(script, narration, drawn, timeline, layers, sound, web_vtt(timeline.cues, language))


async def render(
    plan: Plan, folder: Path, how: Ffmpeg, on_progress: Callable[[Progress], object] = ignore_progress
) -> Video:
    """Make the video, its poster, captions and manifest in a folder. Raises MediaError.

    All files get their names together, after the checks; a failure leaves no file behind.
    """
    spec = OutputSpec(VIDEO, "mp4")
    encoders = video_encoder(spec, how.binary), audio_encoder(spec, how.binary)
    part = folder / PART
    part.mkdir(mode=0o700)
    try:
        pipe = part / "frames"
        os.mkfifo(pipe, 0o600)
        await _both(plan, part, how, (encoders, on_progress))
        pipe.unlink()
        output = await _check_video(plan, part / VIDEO, how)
        video = _describe(plan, folder, output.duration_s)
        await asyncio.to_thread(_publish, plan, video, part)
        return video
    finally:
        await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)


async def _both(
    plan: Plan, part: Path, how: Ffmpeg, wish: tuple[tuple[str, str], Callable[[Progress], object]]
) -> None:
    """Run painter and encoder side by side; the failure of either stops the other."""
    encoders, on_progress = wish
    work = _work(plan, part, encoders)
    painter = asyncio.create_task(_paint(plan, part, Means(how.start, how.is_stopped, how.limits.nice)))
    encoder = asyncio.create_task(how.run(work, part, on_progress))
    try:
        await asyncio.wait({painter, encoder}, return_when=asyncio.FIRST_EXCEPTION)
        if _is_broken_pipe(painter):  # a broken pipe only means that the encoder ended; its own error names the reason
            await asyncio.wait({encoder}, timeout=ENCODER_ENDS_S)
        for task in (encoder, painter):
            if task.done():
                task.result()
    finally:
        for task in (painter, encoder):
            task.cancel()
        await asyncio.gather(painter, encoder, return_exceptions=True)


def _is_broken_pipe(painter: asyncio.Task[None]) -> bool:
    """Whether the painter failed because its reader, the encoder, had ended."""
    error = painter.exception() if painter.done() else None
    return isinstance(error, ChildFailed) and "BrokenPipeError" in str(error)


async def _paint(plan: Plan, part: Path, means: Means) -> None:
    settings, timeline = plan.script.settings, plan.timeline
    facts = {
        "width": settings.width,
        "height": settings.height,
        "unit": settings.unit,
        "fps": settings.fps,
        "accent": settings.accent,
        "folder": str(plan.layers),
        "drawn": plan.drawn,
        "shots": [{"start": shot.start, "end": shot.end, "states": shot.states} for shot in timeline.shots],
        "cross": round(CROSS_S * settings.fps),
        "appear": round(APPEAR_S * settings.fps),
        "pipe": str(part / "frames"),
        "poster": {"frame": timeline.poster_frame, "path": str(part / POSTER)},
    }
    await run_order(Order("paint", facts, Sight((plan.layers,), (part,))), means, lambda _: None)


def _work(plan: Plan, part: Path, encoders: tuple[str, str]) -> Work:
    settings = plan.script.settings
    size = f"{settings.width}x{settings.height}"
    raw = ("-video_size", size, "-pixel_format", "yuv420p", "-framerate", str(settings.fps))
    words = ["-map", "0:v", "-map", "1:a", "-c:v", encoders[0], *QUALITY, "-pix_fmt", "yuv420p", *COLOURS]
    words += ["-g", str(KEY_S * settings.fps), "-c:a", encoders[1], "-b:a", "128k", "-ar", "48000", "-ac", "2"]
    words += [*PLAIN, "-movflags", "+faststart", "-f", "mp4", VIDEO]
    inputs = (Input(part / "frames", "rawvideo", raw), Input(plan.sound, "wav"))
    return Work(inputs, tuple(words), plan.timeline.duration_s)


async def _check_video(plan: Plan, path: Path, how: Ffmpeg) -> Media:
    output = await probe(path, start=how.start)
    expected_s = plan.timeline.duration_s
    if output.video is None or output.audio is None or abs(output.duration_s - expected_s) > SLACK_S:
        raise OutputIncomplete(f"{output.duration_s:.3f} s were written where {expected_s:.3f} s were expected")
    return output


def _describe(plan: Plan, folder: Path, duration_s: float) -> Video:
    fps = plan.timeline.fps
    scenes = tuple(
        {"heading": scene.heading, "start_s": round(shot.start / fps, 3), "end_s": round(shot.end / fps, 3)}
        for scene, shot in zip(plan.script.scenes, plan.timeline.shots, strict=True)
    )
    is_speech = all(scene_sound.is_speech for scene_sound in plan.narration.scenes)
    video, poster, captions, manifest = (folder / name for name in (VIDEO, POSTER, CAPTIONS, MANIFEST))
    return Video(video, poster, captions, manifest, duration_s, is_speech, plan.narration.warnings, scenes)


def _publish(plan: Plan, video: Video, part: Path) -> None:
    """Rename all files into place; the video comes last, because its presence means that the rest is complete."""
    settings = plan.script.settings
    manifest = {
        "title": plan.script.title,
        "duration_s": round(video.duration_s, 3),
        "width": settings.width,
        "height": settings.height,
        "fps": settings.fps,
        "voice": "speech" if video.is_speech else "tone",
        "warnings": video.warnings,
        "scenes": video.scenes,
    }
    (part / CAPTIONS).write_text(plan.captions, "utf-8")
    (part / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False, indent=1), "utf-8")
    for place in (video.poster, video.captions, video.manifest, video.video):
        (part / place.name).replace(place)
