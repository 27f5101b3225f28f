"""Files that mean harm: each layer stops them alone, and no packet leaves and nothing outside is read."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from callsheet.media.binaries import find_ffmpeg
from callsheet.media.errors import MediaError
from callsheet.media.ffmpeg import Ffmpeg, Input, Work
from callsheet.media.spec import OutputSpec
from callsheet.media.transcode import transcode
from callsheet.sandbox.command import Limits, Sight, Walls, environment, sandboxed_command, walls
from callsheet.sandbox.sandbox_launcher import EXIT_REFUSED
from tests.media.corpus import Corpus, list_in_avi, png_head, wav_of, y4m_head
from tests.time_limits import within

MARK = b"\x91canary-of-the-folder-next-door\x91"
EACH_S = within(20.0)


class Listener:
    """A server that counts who comes."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.visits = 0
        self.visited = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                visitor, _ = self.socket.accept()
            except OSError:
                return
            self.visits += 1
            self.visited.set()
            visitor.close()

    def saw(self) -> int:
        """How many came; our own visit proves that earlier visits would be counted."""
        self.visited.clear()
        before = self.visits
        socket.create_connection(("127.0.0.1", self.port)).close()
        assert self.visited.wait(30)
        self.visits = before
        return before


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.socket.close()


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    path = tmp_path / "next_door" / "canary.wav"
    path.parent.mkdir()
    path.write_bytes(wav_of(MARK * 300))
    return path


def harmful(canary: Path, port: int) -> dict[str, bytes]:
    """Malicious uploads disguised as videos."""
    web = f"http://127.0.0.1:{port}/a.ts"
    hls = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n"
    return {
        "ffconcat": f"ffconcat version 1.0\nfile '{canary}'\n".encode(),
        "ffconcat_sibling": f"ffconcat version 1.0\nfile {canary.name}\n".encode(),
        "ffconcat_web": f"ffconcat version 1.0\nfile '{web}'\n".encode(),
        "hls_file": hls.format(canary).encode(),
        "hls_web": hls.format(web).encode(),
        "hls_concat": hls.format(f"concat:{canary}|{canary}").encode(),
        "hls_subfile": hls.format(f"subfile,,start,0,end,9000,,:{canary}").encode(),
        "hls_itself": hls.format("video.mp4").encode(),
        "concat": f"concat:{canary}|{canary}".encode(),
        "subfile": f"subfile,,start,0,end,9000,,:{canary}".encode(),
        "dash": f'<?xml version="1.0"?><MPD><BaseURL>{web}</BaseURL></MPD>'.encode(),
        "hls_in_avi": list_in_avi(hls.format(web).encode()),
        "giant_y4m": y4m_head(100_000, 100_000),
        "giant_png": png_head(100_000, 100_000),
        "text": b"not a film\n" * 40,
        "nothing": b"",
    }


NAMES = tuple(harmful(Path("/c"), 1))


def holds_mark(folder: Path) -> bool:
    return any(MARK in file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("name", NAMES)
async def test_a_harmful_file_ends_in_a_typed_error(
    tmp_path: Path, how: Ffmpeg, canary: Path, listener: Listener, name: str
) -> None:
    source, out = tmp_path / "in" / "video.mp4", tmp_path / "out"
    source.parent.mkdir()
    out.mkdir()
    shutil.copy(canary, source.parent)
    source.write_bytes(harmful(canary, listener.port)[name])
    began = time.monotonic()
    with pytest.raises(MediaError) as excinfo:
        await transcode(source, OutputSpec("a.wav", "wav"), out, how)
    assert time.monotonic() - began < EACH_S
    assert not excinfo.value.retryable
    assert list(out.iterdir()) == []
    assert listener.saw() == 0


@pytest.mark.parametrize(
    "name", ["ffconcat", "ffconcat_sibling", "ffconcat_web", "hls_file", "hls_web", "hls_concat", "hls_subfile"]
)
async def test_the_forced_demuxer_alone_follows_no_list(
    tmp_path: Path, how: Ffmpeg, canary: Path, listener: Listener, name: str
) -> None:
    source, out = tmp_path / "video.mp4", tmp_path / "out"
    out.mkdir()
    shutil.copy(canary, tmp_path)
    source.write_bytes(harmful(canary, listener.port)[name])
    for demuxer in ("mov", "wav"):
        work = Work((Input(source, demuxer),), ("-f", "wav", "a.wav"))
        with pytest.raises(MediaError):
            await how._replace(walls=Walls()).run(work, out)
    assert not holds_mark(out)
    assert listener.saw() == 0


def run_open(command: list[str], folder: Path, chosen: Walls) -> subprocess.CompletedProcess[bytes]:
    """Run ffmpeg with everything allowed but what the walls forbid."""
    folder.mkdir(exist_ok=True)
    sources = [Path(word) for before, word in pairwise(command) if before == "-i" and word[0] == "/"]
    line = sandboxed_command(
        [str(find_ffmpeg()), "-v", "error", "-y", *command], Sight(tuple(sources), (folder,)), Limits(), chosen
    )
    return subprocess.run(
        line,
        cwd=folder,
        env=environment(folder),
        timeout=EACH_S,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


OPEN = ["-protocol_whitelist", "file,http,tcp,crypto,data,concat,subfile", "-safe", "0", "-f", "concat"]


def test_without_walls_a_list_is_followed_to_the_file_next_door(tmp_path: Path, canary: Path) -> None:
    """The control: the tests detect a read file and a visited URL."""
    (tmp_path / "video.mp4").write_bytes(harmful(canary, 1)["ffconcat"])
    run_open([*OPEN, "-i", str(tmp_path / "video.mp4"), "-c", "copy", "a.wav"], tmp_path / "out", Walls())
    assert holds_mark(tmp_path / "out")


def test_without_walls_a_list_is_followed_into_the_network(tmp_path: Path, canary: Path, listener: Listener) -> None:
    (tmp_path / "video.mp4").write_bytes(harmful(canary, listener.port)["ffconcat_web"])
    run_open([*OPEN, "-i", str(tmp_path / "video.mp4"), "-c", "copy", "a.wav"], tmp_path / "out", Walls())
    assert listener.saw() > 0


@pytest.mark.skipif(not walls().landlock, reason="this kernel has no Landlock")
def test_landlock_alone_keeps_the_file_next_door_closed(tmp_path: Path, canary: Path) -> None:
    (tmp_path / "video.mp4").write_bytes(harmful(canary, 1)["ffconcat"])
    source = str(tmp_path / "video.mp4")
    run_open([*OPEN, "-i", source, "-c", "copy", "a.wav"], tmp_path / "out", Walls(landlock=True))
    assert not holds_mark(tmp_path / "out")
    outside = run_open(
        ["-f", "u8", "-i", source, str(tmp_path / "outside.wav")], tmp_path / "out", Walls(landlock=True)
    )
    assert outside.returncode != 0
    assert not (tmp_path / "outside.wav").exists()


@pytest.mark.parametrize("wall", ["namespace", "seccomp"])
def test_each_wall_alone_keeps_packets_in(tmp_path: Path, canary: Path, listener: Listener, wall: str) -> None:
    if not getattr(walls(), wall):
        pytest.skip(f"this machine has no {wall}")
    (tmp_path / "video.mp4").write_bytes(harmful(canary, listener.port)["ffconcat_web"])
    source = str(tmp_path / "video.mp4")
    run_open([*OPEN, "-i", source, "-c", "copy", "a.wav"], tmp_path / "out", Walls(**{wall: True}))
    assert listener.saw() == 0
    run_open(["-i", f"tcp://127.0.0.1:{listener.port}", "a.wav"], tmp_path / "out", Walls(**{wall: True}))
    assert listener.saw() == 0


def test_a_wall_that_cannot_be_had_keeps_the_program_from_running(tmp_path: Path) -> None:
    line = sandboxed_command(
        [str(find_ffmpeg()), "-version"], Sight(read=(tmp_path / "missing",)), Limits(), Walls(landlock=True)
    )
    run = subprocess.run(line, capture_output=True, check=False, timeout=EACH_S)
    if not walls().landlock:
        pytest.skip("this kernel has no Landlock")
    assert run.returncode == EXIT_REFUSED
    assert b"ffmpeg version" not in run.stdout


def test_a_program_in_the_box_has_no_powers_of_root(tmp_path: Path) -> None:
    cat = shutil.which("cat")
    assert cat is not None
    run = subprocess.run(
        sandboxed_command([cat, "/proc/self/status"], Sight(read=(Path("/proc"),)), Limits()),
        capture_output=True,
        check=True,
    )
    status = dict(line.split(":\t", 1) for line in run.stdout.decode().splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == 0
    if walls().seccomp:
        assert status["Seccomp"] == "2"


async def test_twelve_boxes_at_once_do_not_get_in_each_others_way(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    work = Work((Input(corpus("sound.wav"), "wav"),), ("-f", "wav", "a.wav"))
    folders = [tmp_path / str(number) for number in range(12)]
    for folder in folders:
        folder.mkdir()
    await asyncio.gather(*(how.run(work, folder) for folder in folders))
    assert {(folder / "a.wav").stat().st_size for folder in folders} == {(folders[0] / "a.wav").stat().st_size}
