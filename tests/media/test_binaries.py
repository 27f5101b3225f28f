from __future__ import annotations

from pathlib import Path

import pytest

from callsheet.media import binaries
from callsheet.media.binaries import Binary, examine, ffmpeg, find_ffmpeg, find_tessdata
from callsheet.media.errors import FfmpegMissing


def version(text: str) -> Binary:
    return Binary(Path("/ffmpeg"), text, frozenset(), frozenset())


def test_there_is_an_ffmpeg_without_installing_one() -> None:
    assert ffmpeg().has("libx264", "aac", "libmp3lame", "libopus", "loudnorm", "scale")
    assert not ffmpeg().has("no_such_encoder")


@pytest.mark.parametrize(
    ("text", "mended", "old"),
    [
        ("8.1.3", True, False),
        ("8.2", True, False),
        ("8.1.2", False, False),
        ("7.0.2-static", False, False),
        ("5.1.9-0+deb12u1", True, False),
        ("4.4.2-0ubuntu0.22.04.1", True, True),
        ("N-117000-gabcdef", True, False),
    ],
)
def test_a_version_is_safe_when_new_or_kept_by_a_distribution(text: str, mended: bool, old: bool) -> None:  # noqa: FBT001
    assert (version(text).is_mended, version(text).is_old) == (mended, old)


def test_the_setting_wins_over_the_system_and_the_system_over_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = tmp_path / "mine", tmp_path / "ffmpeg"
    for path in (ours, theirs):
        path.write_text("#!/bin/sh\necho ffmpeg version 9.9\n")
        path.chmod(0o700)
    monkeypatch.delenv("CALLSHEET_FFMPEG", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "imageio_ffmpeg" in str(find_ffmpeg())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ffmpeg() == theirs
    monkeypatch.setenv("CALLSHEET_FFMPEG", str(ours))
    assert find_ffmpeg() == ours
    assert examine(ours).version == "9.9"


def test_an_ffmpeg_that_is_none_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "ffmpeg"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o700)
    with pytest.raises(FfmpegMissing, match="apt install ffmpeg"):
        examine(broken)
    monkeypatch.setenv("CALLSHEET_FFMPEG", str(tmp_path / "missing"))
    with pytest.raises(FfmpegMissing, match="CALLSHEET_FFMPEG"):
        find_ffmpeg()
    monkeypatch.delenv("CALLSHEET_FFMPEG")
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(binaries, "_in_wheel", lambda: None)
    with pytest.raises(FfmpegMissing, match="no ffmpeg is installed"):
        find_ffmpeg()


def test_trained_data_for_reading_text_is_found() -> None:
    found = find_tessdata()
    assert found is not None
    assert (found / "eng.traineddata").is_file()
