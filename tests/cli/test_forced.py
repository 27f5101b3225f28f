"""An ffmpeg that somebody named is looked at before the first job."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Shop, Start
from tests.media.test_binaries import program


def test_a_worker_does_not_start_with_an_ffmpeg_that_cannot_serve(shop: Shop, start: Start, tmp_path: Path) -> None:
    job_id = shop.add()
    worker = start("worker", shop.app, "--burst", CALLSHEET_FFMPEG=str(program(tmp_path / "bin", "5.1.9-0+deb12u1")))
    assert worker.end() == 2
    assert "is ffmpeg 5.1.9-0+deb12u1 and lacks a version of 7.0 or newer; pip install imageio-ffmpeg" in "\n".join(
        worker.said
    )
    assert shop.job(job_id).attempt_count == 0


def test_a_worker_warns_of_a_named_ffmpeg_with_known_holes(shop: Shop, start: Start, tmp_path: Path) -> None:
    shop.add()
    worker = start("worker", shop.app, "--burst", CALLSHEET_FFMPEG=str(program(tmp_path / "bin", "8.1.1")))
    assert worker.end() == 0, worker.said
    assert "ffmpeg 8.1.1 may have known holes (CVE-2026-8461); 8.0.3, 8.1.2 or 9.0 and newer have not" in "\n".join(
        worker.said
    )
