"""Encoding: films by PyAV, each once per folder, and from films the odd ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from PIL import Image

from .drawing import Film, with_inset
from .films import FILMS
from .records import MadeUp

TICKS = 30_000  # a second; 29.97 frames a second are 1001 ticks apart


class Coding(NamedTuple):
    """How frames become a file. `turn` is the rotation that players must apply, in degrees."""

    codec: str = "libx264"
    pix_fmt: str = "yuv420p"
    suffix: str = "mp4"
    turn: int = 0
    colours: tuple[int, int, int] | None = None
    aspect: Fraction = Fraction(1)
    options: tuple[tuple[str, str], ...] = (("preset", "ultrafast"), ("crf", "20"), ("x264-params", "threads=2"))


def made_up(name: str, folder: Path) -> MadeUp:
    """Return the video of this name; a missing file is created."""
    from .odd import ODD_MAKERS  # noqa: PLC0415 - those are made with what is below

    if name in FILMS:
        return film_in(folder, name, FILMS[name](), Coding())
    return ODD_MAKERS[name](folder)


def film_in(folder: Path, name: str, film: Film, coding: Coding) -> MadeUp:
    """A film at a steady rate."""
    step = TICKS // film.fps
    return encoded(folder, name, film, [at * step for at in range(round(film.seconds * film.fps))], coding)


def encoded(folder: Path, name: str, film: Film, ticks: Sequence[int], coding: Coding) -> MadeUp:
    """A film with frames at these ticks; the first timestamp may be above 0."""
    path = folder / f"{name}.{coding.suffix}"
    seconds = [(tick - ticks[0]) / TICKS for tick in ticks]
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.part")  # several processes may share a folder
        write(part, _pictures(film, seconds), ticks, coding)
        part.rename(path)
    last_s = seconds[-1] + (seconds[-1] - seconds[-2] if len(seconds) > 1 else 1 / film.fps)
    duration_ms = round(last_s * 1000)
    truths = tuple(truth._replace(t_end_ms=min(duration_ms, truth.t_end_ms)) for truth in film.truths())
    times_ms = tuple(second * 1000 for second in seconds)
    return MadeUp(name, path, truths, film.fps, duration_ms, *film.size, times_ms)


def _pictures(film: Film, seconds: Sequence[float]) -> Iterator[Image.Image]:
    """Yield pictures, repeating the same object while nothing changes."""
    state: object = None
    picture: Image.Image | None = None
    for second in seconds:
        if picture is None or film.state_at(second) != state:
            state, picture = film.state_at(second), film.picture_at(second)
        yield with_inset(picture, second) if film.inset else picture


def write(path: Path, pictures: Iterator[Image.Image], ticks: Sequence[int], coding: Coding) -> None:
    """All pictures as one video without sound."""
    form = {"ts": "mpegts", "mkv": "matroska"}.get(coding.suffix, coding.suffix)
    with av.open(str(path), "w", format=form) as container:
        stream: Any = None
        reformatter = VideoReformatter()  # one for all: making one costs more than a frame
        last: tuple[Image.Image, av.VideoFrame] | None = None
        lengths = [after - tick for tick, after in pairwise(ticks)]
        lengths.append(lengths[-1] if lengths else TICKS // 25)
        for picture, tick, length in zip(pictures, ticks, lengths, strict=True):
            if last is None or last[0] is not picture:
                turned_picture = picture.rotate(-coding.turn, expand=True) if coding.turn else picture
                last = picture, _as_coded(turned_picture, coding, reformatter)
            frame = last[1]
            if stream is None:
                stream = _stream(container, frame, coding, Fraction(TICKS, sorted(lengths)[len(lengths) // 2]))
            frame.pts, frame.duration, frame.time_base = tick, length, Fraction(1, TICKS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _as_coded(picture: Image.Image, coding: Coding, reformatter: VideoReformatter) -> av.VideoFrame:
    frame = reformatter.reformat(av.VideoFrame.from_ndarray(np.asarray(picture)), format=coding.pix_fmt)
    assert frame is not None
    return frame


def _stream(container: Any, frame: av.VideoFrame, coding: Coding, rate: Fraction) -> Any:
    stream = container.add_stream(coding.codec, rate=rate, options=dict(coding.options))
    stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, coding.pix_fmt
    stream.codec_context.time_base = Fraction(1, TICKS)
    if coding.aspect != 1:
        stream.codec_context.sample_aspect_ratio = coding.aspect
    if coding.colours is not None:
        context = stream.codec_context
        context.color_primaries, context.color_trc, context.colorspace = coding.colours
    if coding.turn:
        stream.set_display_rotation(coding.turn)
    return stream
