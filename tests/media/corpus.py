"""Media files for tests, made by ffmpeg's own sources once per process, and files that mean harm."""

from __future__ import annotations

import struct
import subprocess
import zlib
from pathlib import Path

from callsheet.media.binaries import find_ffmpeg
from callsheet.media.probe import Media, probe
from callsheet.sandbox.command import environment

X264 = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p"
BRIGHT = "setparams=color_trc=smpte2084:color_primaries=bt2020:colorspace=bt2020nc"
PICTURE = "-f lavfi -i testsrc2=d={s}:s={size}:r={r}"
SOUND = "-f lavfi -i sine=f=440:d={s}"


def picture(seconds: float = 2, size: str = "320x180", rate: str = "25") -> str:
    return PICTURE.format(s=seconds, size=size, r=rate)


def sound(seconds: float = 2) -> str:
    return SOUND.format(s=seconds)


# name → arguments of ffmpeg, in which @name is another file of the corpus
RECIPES = {
    "normal.mp4": f"{picture()} {sound()} {X264} -c:a aac -metadata title=secret-title -movflags +faststart",
    "long.mp4": f"{picture(14, '640x360')} {sound(14)} {X264} -c:a aac",
    "tall.mp4": f"{picture(3, '404x720', '10')} {X264}",
    "large.mp4": f"{picture(7, '854x480', '5')} {sound(7)} {X264} -c:a aac",
    "uneven.mp4": f"{picture()} -vf select='not(mod(n,3))+lt(n,20)' -fps_mode vfr {X264}",
    "late.mp4": "-i @normal.mp4 -output_ts_offset 5 -c copy",
    "odd.mkv": f"{picture(1)} -vf scale=321:181,setsar=1 -c:v libx264 -preset ultrafast -pix_fmt yuv444p",
    "silent.mp4": f"{picture(1)} {X264}",
    "sound.mp3": f"{sound()} -b:a 64k",
    "cover.mp3": "-i @sound.mp3 -i @picture.jpg -map 0:a -map 1:v -c copy -disposition:v attached_pic",
    "sound.wav": f"{sound()} -af volume=-12dB",
    "sound.flac": f"{sound(1)}",
    "sound.ogg": f"{sound(1)} -c:a libopus",
    "sound.aac": f"{sound(1)} -c:a aac -f adts",
    "bright.mp4": f"{picture(1)} -vf format=yuv420p10le,{BRIGHT} -c:v libx264 -preset ultrafast",
    "slow.mp4": f"{picture(4, '320x180', '1')} {X264}",
    "wide_pixels.mp4": f"{picture(1, '180x144')} -vf setsar=16/11 {X264}",
    "normal.mkv": "-i @normal.mp4 -c copy",
    "normal.webm": f"{picture(1)} {sound(1)} -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -c:a libopus",
    "normal.ts": "-i @normal.mp4 -c copy",
    "normal.avi": f"{picture(1)} {sound(1)} -c:v mjpeg -c:a pcm_s16le",
    "normal.flv": "-i @normal.mp4 -c copy",
    "normal.mpg": f"{picture(1)} -c:v mpeg2video",
    "picture.png": f"{picture(1)} -frames:v 1",
    "picture.jpg": f"{picture(1)} -frames:v 1",
    "dark_first.mp4": "-f lavfi -i color=black:d=2:s=320x180:r=10 -f lavfi -i testsrc2=d=2:s=320x180:r=10"
    f" -filter_complex [0][1]concat=n=2 {X264}",
    "black.mp4": f"-f lavfi -i color=black:d=1:s=320x180:r=10 {X264}",
    "many.mka": " ".join([sound(1)] * 1 + [f"{' '.join(['-map 0'] * 70)} -c:a pcm_s16le"]),
}


class Corpus:
    """A folder of media files, created on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, Media] = {}

    def __call__(self, name: str) -> Path:
        path = self.folder / name
        if name == "rotated.mp4" and not path.exists():
            self.made(name, turned(self("normal.mp4").read_bytes()))
        elif not path.exists():
            words = [str(self(word[1:])) if word.startswith("@") else word for word in RECIPES[name].split()]
            run_bare(*words, str(path))
        return path

    async def media(self, name: str) -> Media:
        """Return the probed file, from a cache."""
        if name not in self.known:
            self.known[name] = await probe(self(name))
        return self.known[name]

    def made(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def half(self, name: str) -> Path:
        whole = self(name).read_bytes()
        return self.made(f"half_{name}", whole[: len(whole) // 2])


def run_bare(*words: str) -> None:
    """Run ffmpeg without a box."""
    command = [str(find_ffmpeg()), "-v", "error", "-y", "-bitexact", *words]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env=environment(Path("/")), timeout=60)


def turned(mp4: bytes) -> bytes:
    """The same film, to be shown a quarter turned: by its first track's matrix, since ffmpeg 5 has no option for it."""
    start = mp4.index(b"tkhd") + 44  # of the matrix, in a head of version 0
    turn = struct.pack(">9i", 0, -(1 << 16), 0, 1 << 16, 0, 0, 0, 0, 1 << 30)
    return mp4[:start] + turn + mp4[start + len(turn) :]


def wav_of(content: bytes) -> bytes:
    """Bytes as sound: 8 bits, 8000 a second."""
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    body = b"WAVE" + head + struct.pack("<4sI", b"data", len(content)) + content
    return struct.pack("<4sI", b"RIFF", len(body)) + body


def png_head(width: int, height: int) -> bytes:
    """Return the first bytes of a PNG of any size."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    size = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + size + chunk(b"IDAT", zlib.compress(bytes(4096))) + chunk(b"IEND", b"")


def y4m_head(width: int, height: int) -> bytes:
    return f"YUV4MPEG2 W{width} H{height} F25:1 Ip A1:1 C420jpeg\nFRAME\n".encode() + bytes(4096)


def list_in_avi(text: bytes) -> bytes:
    """An AVI with one stream of subtitles, which are a playlist (the GAB2 form)."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    def folder(name: bytes, data: bytes) -> bytes:
        return chunk(b"LIST", name + data)

    name = "x.m3u8\0".encode("utf-16-le")
    inner = b"GAB2\0" + struct.pack("<HI", 2, len(name)) + name + struct.pack("<HI", 4, len(text)) + text
    head = struct.pack("<14I", 40000, 0, 0, 0x10, 1, 0, 1, 0, 320, 180, 0, 0, 0, 0)
    stream = (
        b"txts" + struct.pack("<IIHHIIIIIIII", 0, 0, 0, 0, 0, 1, 25, 0, 1, 0, 0, 0) + struct.pack("<4H", 0, 0, 0, 0)
    )
    headers = folder(
        b"hdrl", chunk(b"avih", head) + folder(b"strl", chunk(b"strh", stream) + chunk(b"strf", bytes(40)))
    )
    body = b"AVI " + headers + folder(b"movi", chunk(b"00tx", inner))
    return b"RIFF" + struct.pack("<I", len(body)) + body
