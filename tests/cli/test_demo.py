"""`callsheet demo` as a real process: killed half-way, a second run continues and prints its table."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from callsheet.engine import Engine
from callsheet.store.protocol import JobQuery

COMMAND = [sys.executable, "-m", "callsheet.cli", "demo", "--exit", "--port", "18484"]
PATIENCE_S = 200


def start(home: Path, log: Path, command: Sequence[str] = COMMAND, **settings: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CALLSHEET_")}
    with log.open("wb") as file:
        arguments = [*command, "--home", str(home)]
        return subprocess.Popen(arguments, stdout=file, stderr=file, env=environment | settings)


@pytest.mark.timeout(420)
def test_a_killed_demo_goes_on_where_it_was_and_tells_what_happened(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    first = start(home, tmp_path / "first.log")
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "video_id" not in _state(home):  # composed and uploaded; it is being read
            assert first.poll() is None, (tmp_path / "first.log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "first.log").read_text()
            time.sleep(0.1)
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    composed_at = (home / "composed.mp4").stat().st_mtime_ns
    video_id = _state(home)["video_id"]
    second = start(home, tmp_path / "second.log")
    assert second.wait(PATIENCE_S) == 0, (tmp_path / "second.log").read_text()
    log_text = (tmp_path / "second.log").read_text()
    assert "What happened" in log_text
    assert "callbacks delivered and verified" in log_text
    assert "Call times for each department" in log_text
    assert "/studio" in log_text
    assert _state(home)["video_id"] == video_id, "the video was not added again"
    assert (home / "clip.mp4").read_bytes()[4:8] == b"ftyp"
    assert (home / "composed.mp4").stat().st_mtime_ns >= composed_at
    for secret in ("state.json", "keys"):
        assert (home / secret).stat().st_mode & 0o077 == 0, f"{secret} is for its owner alone"


def test_a_demo_that_fails_says_why_ends_and_begins_anew(tmp_path: Path) -> None:
    home, log = tmp_path / "demo", tmp_path / "demo.log"
    keeps_serving = [part for part in COMMAND if part != "--exit"]
    for turn in (1, 2):
        failing = start(home, log, keeps_serving, CALLSHEET_FFMPEG="/bin/false")
        try:
            assert failing.wait(PATIENCE_S) == 1, log.read_text()
        finally:
            failing.kill()
        (last_line,) = re.findall(r"^callsheet: .*", log.read_text(), re.MULTILINE)
        assert "no video was composed: ffmpeg_missing: " in last_line
        assert "set CALLSHEET_FFMPEG" in last_line
        assert asyncio.run(_composed(home)) == turn, "what failed before is not told again"


async def _composed(home: Path) -> int:
    async with Engine.from_url(f"sqlite:///{home / 'demo.db'}") as engine:
        return len((await engine.find(JobQuery(kind="compose"))).jobs)


def _state(home: Path) -> dict[str, object]:
    try:
        body: dict[str, object] = json.loads((home / "state.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return body
