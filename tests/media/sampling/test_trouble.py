"""Files that cannot be sampled completely, and crashing children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callsheet.media.errors import (
    CorruptInput,
    DiskFull,
    EmptyFile,
    FfmpegCrashed,
    InputTooLarge,
    InvalidOutput,
    MediaError,
    MediaStopped,
    NoSuchStream,
    NotMedia,
    Stalled,
    TookTooLong,
    TruncatedInput,
    UnsupportedInput,
)
from callsheet.media.probe import Caps
from callsheet.media.progress import Progress
from callsheet.media.sampling import sample as sampling
from callsheet.media.sampling.child import AHEAD
from callsheet.media.sampling.records import Kept, Sampling
from callsheet.media.sampling.sample import sample
from callsheet.sandbox.command import of_python
from callsheet.sandbox.processes import start_alone
from tests.media.made_up import CAPTIONS_40, MadeUp
from tests.media.sampling.kit import MEANS, sampled

Video = Callable[[str], MadeUp]
WAIT_S = 30


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("truncated", TruncatedInput),
        ("empty", EmptyFile),
        ("zero_length", NotMedia),
        ("no_frames", CorruptInput),
        ("sound_only", NoSuchStream),
    ],
)
async def test_what_is_no_whole_video_is_a_typed_error(
    video: Video, tmp_path: Path, name: str, error: type[MediaError]
) -> None:
    with pytest.raises(error) as excinfo:
        await sampled(video(name).path, tmp_path)
    assert not excinfo.value.retryable
    assert list(tmp_path.iterdir()) == []


async def test_a_list_of_other_files_is_refused(video: Video, tmp_path: Path) -> None:
    target = video("price").path
    for number, text in enumerate((f"ffconcat version 1.0\nfile '{target}'\n", f"#EXTM3U\n#EXTINF:1,\n{target}\n")):
        listing = tmp_path / f"{number}.mp4"
        listing.write_text(text)
        with pytest.raises(UnsupportedInput):
            await sampled(listing, tmp_path)


async def test_the_child_opens_no_list_even_when_it_is_told_to(video: Video, tmp_path: Path) -> None:
    from callsheet.media.sampling.decode import Order, look  # noqa: PLC0415 - loads the decoder

    listing = tmp_path / "list.mp4"
    listing.write_text(f"ffconcat version 1.0\nfile '{video('price').path}'\n")
    reports: list[dict[str, Any]] = []
    order = Order(str(listing), "mov", 0, str(tmp_path), 10**8, 65, 1, Sampling())
    with pytest.raises(ValueError, match="Invalid data"):
        look(order, reports.append)
    assert reports == []


async def test_a_stream_without_an_end_is_sampled_as_far_as_it_goes(video: Video, tmp_path: Path) -> None:
    film = video("truncated_ts")
    outcome = await sampled(film.path, tmp_path)
    assert 3000 < outcome.sampled.duration_ms < 5000
    assert outcome.kept[-1].until_ms == outcome.sampled.duration_ms


async def test_what_could_not_be_decoded_is_a_gap_that_no_frame_claims(video: Video, tmp_path: Path) -> None:
    outcome = await sampled(video("hole").path, tmp_path)
    assert len(outcome.sampled.gaps) == 1
    ((begin, end),) = outcome.sampled.gaps
    assert 1000 <= begin < end <= 5000
    assert end - begin >= 1000
    assert all(one.until_ms <= begin or one.since_ms >= end for one in outcome.kept)
    assert any(one.since_ms == end for one in outcome.kept)
    assert outcome.kept[-1].until_ms == outcome.sampled.duration_ms == 8000


async def test_a_picture_over_the_limit_is_refused(video: Video, tmp_path: Path) -> None:
    means = MEANS._replace(caps=Caps(pixels=1280 * 720 - 1))
    with pytest.raises(InputTooLarge):
        await sampled(video("price").path, tmp_path, means=means)


@pytest.mark.parametrize(
    "options",
    [
        Sampling(target_fps=0),
        Sampling(target_fps=float("nan")),
        Sampling(target_fps=10_000),
        Sampling(dedupe_threshold=1.1),
        Sampling(guard_min_interval_s=-1),
    ],
)
async def test_options_that_mean_nothing_are_refused(tmp_path: Path, options: Sampling) -> None:
    with pytest.raises(InvalidOutput):
        await sampled(tmp_path / "none", tmp_path, options)


class Started:
    """Keeps the processes that were started."""

    def __init__(self) -> None:
        self.processes: list[Process] = []

    async def __call__(self, program: str, *args: str, **options: Any) -> Process:
        process = await start_alone(program, *args, **options)
        self.processes.append(process)
        return process


async def test_the_child_waits_for_a_slow_taker_and_dies_when_the_task_is_cancelled(
    video: Video, tmp_path: Path
) -> None:
    children, taken = Started(), asyncio.Event()

    async def take(_: Kept) -> None:
        taken.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(sample(video("credits").path, tmp_path, take, means=MEANS._replace(start=children)))
    async with asyncio.timeout(WAIT_S):
        await taken.wait()
        while len(list(tmp_path.iterdir())) < AHEAD:
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)  # it would go on now, if it did not wait
    assert len(list(tmp_path.iterdir())) <= AHEAD + 1
    child = children.processes[-1]
    assert child.returncode is None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert child.returncode is not None


async def test_told_to_stop_it_stops(video: Video, tmp_path: Path) -> None:
    children, reports = Started(), []

    async def take(frame: Kept) -> None:
        reports.append(frame)

    means = MEANS._replace(start=children, is_stopped=lambda: bool(reports))
    with pytest.raises(MediaStopped):
        await sample(video(CAPTIONS_40).path, tmp_path, take, means=means)
    assert all(process.returncode is not None for process in children.processes)


async def test_what_the_taker_raises_ends_it(video: Video, tmp_path: Path) -> None:
    children = Started()

    async def take(_: Kept) -> None:
        raise TimeoutError("the upload took too long")

    with pytest.raises(TimeoutError, match="the upload"):
        await sample(video("slide").path, tmp_path, take, means=MEANS._replace(start=children))
    assert children.processes[-1].returncode is not None


async def test_memory_does_not_grow_with_the_length_of_the_video(video: Video, tmp_path: Path) -> None:
    children = Started()
    most_kb: list[int] = []
    taken_jobs: list[Kept] = []

    async def take(frame: Kept) -> None:
        frame.path.unlink()
        taken_jobs.append(frame)
        with contextlib.suppress(OSError, IndexError):  # it has ended: the last few may be taken after that
            status = Path(f"/proc/{children.processes[-1].pid}/status").read_text()
            most_kb.append(int(status.partition("VmRSS:")[2].split()[0]))

    await sample(video(CAPTIONS_40).path, tmp_path, take, means=MEANS._replace(start=children))
    assert len(most_kb) > len(taken_jobs) - AHEAD > 8
    assert max(most_kb) - most_kb[len(most_kb) // 4] < 24 * 1024
    assert list(tmp_path.iterdir()) == []


async def test_progress_grows_and_never_says_that_all_is_done(
    video: Video, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real child, but it reports after every sample: how many half seconds it takes is a matter of the machine."""
    folder = fake(
        tmp_path,
        monkeypatch,
        """
import os, sys
sys.path += sys.argv[1].split(os.pathsep)
from callsheet.media.sampling import child, decode
decode.TELL_S = -1.0
child.main(sys.argv[1])
""",
    )
    seen: list[Progress] = []
    outcome = await sampled(video("price").path, folder, on_progress=seen.append)
    percents = [one.percent or 0.0 for one in seen]
    assert len(percents) == outcome.sampled.sampled
    assert percents == sorted(percents)
    assert 50 < percents[-1] < 100


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    """Another program in place of the child; its sandbox is identical."""
    child = tmp_path / "child.py"
    child.write_text(body)
    monkeypatch.setattr(sampling, "CHILD", child)
    places = (*of_python(), child)
    monkeypatch.setattr(sampling, "of_python", lambda: places)
    folder = tmp_path / "frames"
    folder.mkdir()
    return folder


async def test_a_child_that_hangs_or_takes_too_long_is_ended(
    video: Video, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake(tmp_path, monkeypatch, "import time\ntime.sleep(60)\n")
    with pytest.raises(Stalled):
        await sampled(video("price").path, folder, means=MEANS._replace(limits=sampling.LIMITS._replace(stall_s=0.5)))
    with pytest.raises(TookTooLong):
        await sampled(video("price").path, folder, means=MEANS._replace(limits=sampling.LIMITS._replace(wall_s=0.5)))


@pytest.mark.parametrize("body", ["import os\nos.kill(os.getpid(), 11)\n", "import os\nos.abort()\n"])
async def test_a_decoder_that_crashes_is_tried_once_more(
    video: Video, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    with pytest.raises(FfmpegCrashed) as excinfo:
        await sampled(video("price").path, fake(tmp_path, monkeypatch, body))
    assert [excinfo.value.retry_after(attempt) for attempt in (1, 2)] == [True, False]


async def test_a_child_that_breaks_off_is_no_success(
    video: Video, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, body in {"quiet": "", "loud": "raise SystemExit('bad /home/someone/key.txt')\n"}.items():
        (tmp_path / name).mkdir()
        with pytest.raises(MediaError) as excinfo:
            await sampled(video("price").path, fake(tmp_path / name, monkeypatch, body))
        assert "/home" not in str(excinfo.value)


async def test_the_child_sees_no_other_file_and_no_network(
    video: Video, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    body = f"""
import json, socket
found = []
for what, act in {{
    "read": lambda: open({str(secret)!r}).read(),
    "write": lambda: open({str(tmp_path / "new.txt")!r}, "w"),
    "talk": lambda: socket.create_connection(("127.0.0.1", 9)),
}}.items():
    try:
        act()
        found.append(what)
    except ConnectionRefusedError:
        found.append(what)
    except OSError:
        pass
print(json.dumps({{"error": "data", "text": f"could {{found}}"}}))
"""
    with pytest.raises(CorruptInput, match=r"could \[\]"):
        await sampled(video("price").path, fake(tmp_path, monkeypatch, body))


async def test_a_disk_that_fills_up_is_noticed(video: Video, tmp_path: Path) -> None:
    means = MEANS._replace(limits=sampling.LIMITS._replace(free_bytes=2**60))
    with pytest.raises(DiskFull) as excinfo:
        await sampled(video("price").path, tmp_path, means=means)
    assert excinfo.value.retryable


def test_no_decoder_is_loaded_into_our_own_process() -> None:
    code = "import sys, callsheet.media.sampling.sample; sys.exit('av' in sys.modules or 'PIL' in sys.modules)"
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, **paths}, check=False).returncode == 0
