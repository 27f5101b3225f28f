"""Media files with one anomaly each. The frames of most carry their own number, which `number_in` reads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image, ImageDraw

from .drawing import BLACK, WHITE, Film, Line
from .films import FILMS, one_after_another
from .making import TICKS, Coding, encoded, film_in
from .records import MadeUp

BITS = 12
BAR_TOP, BAR_BOTTOM = 0.0, 0.55  # of the height
SIZE = (640, 360)
NTSC = 1001
PQ = (9, 16, 9)  # the numbers of BT.2020, of PQ and of the matrix
PLAIN = Coding()
INTRA = (("preset", "ultrafast"), ("crf", "20"), ("x264-params", "threads=1:keyint=25"))


def numbered(seconds: Sequence[float], size: tuple[int, int] = SIZE, fps: int = 30) -> Film:
    """Frames with their number as bars above, and a line of text below that changes half way."""

    def bars(time_s: float, size: tuple[int, int]) -> Image.Image:
        number = bisect_right(seconds, time_s + 1e-6) - 1
        picture = Image.new("RGB", size, (128, 128, 128))
        draw = ImageDraw.Draw(picture)
        for bit in range(BITS):
            left, right = size[0] * bit / BITS, size[0] * (bit + 1) / BITS
            draw.rectangle((left, 0, right, size[1] * BAR_BOTTOM), fill=WHITE if number >> bit & 1 else BLACK)
        return picture

    half, end = seconds[len(seconds) // 2], 2 * seconds[-1] + 1
    px = size[1] // 9
    place = (size[0] * 0.1, size[1] * 0.7)
    lines = (Line("First half", 0, half, place, px, WHITE), Line("Second half", half, end, place, px, WHITE))
    return Film(lines, bars, seconds[-1], fps, size, moves=True)


def number_in(picture: Image.Image) -> int:
    """Return the number drawn into a frame by `numbered`."""
    shades = np.asarray(picture.convert("L"), np.float64)
    row = shades[int(shades.shape[0] * 0.1) : int(shades.shape[0] * 0.45)].mean(axis=0)
    width = len(row) / BITS
    middles = [row[int(width * (bit + 0.3)) : int(width * (bit + 0.7))].mean() for bit in range(BITS)]
    return sum(1 << bit for bit, shade in enumerate(middles) if shade > 128)


def _numbered(
    folder: Path, name: str, ticks: Sequence[int], coding: Coding = PLAIN, size: tuple[int, int] = SIZE
) -> MadeUp:
    seconds = [(tick - ticks[0]) / TICKS for tick in ticks]
    fps = round((len(ticks) - 1) / seconds[-1])
    return encoded(folder, name, numbered(seconds, size, fps), ticks, coding)


def ntsc(folder: Path) -> MadeUp:
    return _numbered(folder, "ntsc", [at * NTSC for at in range(180)])


def vfr(folder: Path) -> MadeUp:
    steps = np.random.default_rng(7).choice([500, 1000, 1001, 2500, 9000], 150)
    return _numbered(folder, "vfr", [0, *map(int, np.cumsum(steps))])


def late_start(folder: Path) -> MadeUp:
    return _numbered(folder, "late_start", [int(5.4 * TICKS) + at * NTSC for at in range(150)], Coding(suffix="ts"))


def late_mp4(folder: Path) -> MadeUp:
    return _numbered(folder, "late_mp4", [int(2.5 * TICKS) + at * NTSC for at in range(150)])


def odd_size(folder: Path) -> MadeUp:
    coding = Coding(pix_fmt="yuv444p", suffix="mkv")
    return _numbered(folder, "odd_size", [at * 1200 for at in range(100)], coding, (641, 359))


def one_fps(folder: Path) -> MadeUp:
    return _numbered(folder, "one_fps", [at * TICKS for at in range(8)])


def fps_240(folder: Path) -> MadeUp:
    return _numbered(folder, "fps_240", [at * TICKS // 240 for at in range(600)], size=(320, 180))


def hdr_10bit(folder: Path) -> MadeUp:
    coding = Coding(pix_fmt="yuv420p10le", colours=PQ)
    return _numbered(folder, "hdr_10bit", [at * 1200 for at in range(100)], coding)


def turned_90(folder: Path) -> MadeUp:
    return film_in(folder, "turned_90", FILMS["price"](), Coding(turn=90))


def turned_180(folder: Path) -> MadeUp:
    return film_in(folder, "turned_180", FILMS["price"](), Coding(turn=180))


def turned_270(folder: Path) -> MadeUp:
    return film_in(folder, "turned_270", FILMS["price"](), Coding(turn=270))


def one_frame(folder: Path) -> MadeUp:
    film = FILMS["price"]()._replace(seconds=1 / 25)
    return film_in(folder, "one_frame", film, Coding())


def hole(folder: Path) -> MadeUp:
    """Key frames once a second, and nothing but noise in the third and fourth of eight seconds."""
    film = film_in(folder, "whole_ts", FILMS["slide"](), Coding(suffix="ts", options=INTRA))
    return _changed(film, folder, _with_noise, "hole")


def truncated(folder: Path) -> MadeUp:
    """Return half an MP4 file whose head states the full length."""
    return _changed(film_in(folder, "whole", FILMS["slide"](), Coding()), folder, _half, "truncated")


def truncated_ts(folder: Path) -> MadeUp:
    """Return half a transport stream, which states no length."""
    film = film_in(folder, "whole_ts", FILMS["slide"](), Coding(suffix="ts", options=INTRA))
    return _changed(film, folder, _half, "truncated_ts")


def empty(folder: Path) -> MadeUp:
    path = folder / "empty.mp4"
    path.write_bytes(b"")
    return MadeUp("empty", path, (), 0, 0, 0, 0, ())


def zero_length(folder: Path) -> MadeUp:
    """Return a complete file whose video stream has no frames."""
    path = folder / "zero_length.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        container.start_encoding()
    return MadeUp("zero_length", path, (), 25, 0, 320, 180, ())


def no_frames(folder: Path) -> MadeUp:
    """Return a stream with a valid head followed by noise."""
    film = film_in(folder, "short", FILMS["price"]()._replace(seconds=2), Coding(suffix="mkv"))
    return _changed(film, folder, _noise_after_head, "no_frames")


def wide_pixels(folder: Path) -> MadeUp:
    """Pixels that are a third wider than high."""
    film = FILMS["price"]()._replace(seconds=1)
    made = film_in(folder, "wide_pixels", film, Coding(aspect=Fraction(4, 3)))
    return made._replace(width=round(made.width * 4 / 3))


def one_fps_captions(folder: Path) -> MadeUp:
    """Another small text in each frame, and one frame a second."""
    texts = ("Amber", "Bridge", "Copper", "Desert", "Ember", "Forest")
    lines = one_after_another(texts, 1, 300, Line("", 0, 0, (0, 0), 32, WHITE, outline=2), 640)
    film = Film(lines, FILMS["comes_back"]().background, 6, 1, SIZE)
    return film_in(folder, "one_fps_captions", film, Coding())


def sound_only(folder: Path) -> MadeUp:
    path = folder / "sound_only.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=48_000, layout="mono")
        for at in range(100):
            wave = np.sin(np.arange(1024) * 0.05).astype(np.float32)[None, :]
            frame = av.AudioFrame.from_ndarray(wave, format="fltp", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 48_000, at * 1024, Fraction(1, 48_000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return MadeUp("sound_only", path, (), 0, 2133, 0, 0, ())


def _changed(film: MadeUp, folder: Path, change: Callable[[bytes], bytes], name: str) -> MadeUp:
    path = folder / f"{name}{film.path.suffix}"
    path.write_bytes(change(film.path.read_bytes()))
    return film._replace(name=name, path=path)


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2 // 188 * 188]


def _noise_after_head(content: bytes) -> bytes:
    at = content.index(b"\x1f\x43\xb6\x75") + 30  # the first cluster
    return content[:at] + np.random.default_rng(3).integers(0, 256, len(content) - at, np.uint8).tobytes()


def _with_noise(content: bytes) -> bytes:
    begin, end = len(content) // 4 // 188 * 188, len(content) // 2 // 188 * 188
    noise = np.random.default_rng(3).integers(0, 256, end - begin, np.uint8)
    noise[::188] = 0x47
    return content[:begin] + noise.tobytes() + content[end:]


ODD_MAKERS: dict[str, Callable[[Path], MadeUp]] = {
    make.__name__: make
    for make in (
        *(ntsc, vfr, late_start, late_mp4, odd_size, one_fps, fps_240, hdr_10bit, turned_90, turned_180, turned_270),
        *(
            wide_pixels,
            one_fps_captions,
            one_frame,
            hole,
            no_frames,
            truncated,
            truncated_ts,
            empty,
            zero_length,
            sound_only,
        ),
    )
}
ODD: tuple[str, ...] = tuple(ODD_MAKERS)
