"""Which ffmpeg is used: by version and capabilities, never by path."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from callsheet.media import binaries
from callsheet.media.binaries import Binary, best_of, choose, examine, ffmpeg, find_ffmpeg
from callsheet.media.errors import FfmpegMissing, FfmpegUnfit
from callsheet.media.ocr import tessdata

ALL = frozenset(binaries.REQUIRED_FEATURES)
SCRIPT = """#!/bin/sh
case "$*" in
*-encoders*) for name in {coders}; do echo " V....D $name x"; done ;;
*-filters*) for name in {filters}; do echo " TSC $name V->V x"; done ;;
*) echo "ffmpeg version {version} Copyright (c)" ;;
esac
"""


def program(folder: Path, version: str, name: str = "ffmpeg", coders: str = "libx264 aac") -> Path:
    """Write a script that prints an ffmpeg's version output."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    filters = "scale fps setsar volume loudnorm"
    path.write_text(SCRIPT.format(version=version, coders=coders, filters=filters))
    path.chmod(0o700)
    return path


def binary(version: str, path: str = "/usr/bin/ffmpeg", able: frozenset[str] = ALL) -> Binary:
    return Binary(Path(path), version, able, frozenset())


@pytest.fixture(autouse=True)
def nothing_is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALLSHEET_FFMPEG", raising=False)


def test_there_is_an_ffmpeg_without_installing_one() -> None:
    assert ffmpeg().has("libx264", "aac", "libmp3lame", "libopus", "loudnorm", "scale")
    assert not ffmpeg().has("no_such_encoder")
    assert ffmpeg().is_safe
    assert not ffmpeg().lacks


@pytest.mark.parametrize(
    ("version", "is_safe", "suffices"),
    [
        ("9.0.2", True, True),
        ("n9.0.2-17-g2a571b6068-20260930", True, True),
        ("9.0", True, True),
        ("10.1", True, True),
        ("8.1.2", True, True),
        ("8.1.10", True, True),
        ("8.1.1", False, True),
        ("8.1", False, True),
        ("8.0.3", True, True),
        ("8.0.2", False, True),
        ("8", False, True),
        ("7.1.9", False, True),
        ("7.0.2-static", False, True),
        ("5.1.9-0+deb12u1", False, False),
        ("4.4.2-0ubuntu0.22.04.1", False, False),
        ("N-117000-gabcdef", False, True),
    ],
)
def test_a_version_is_safe_by_its_branch_whoever_built_it(version: str, is_safe: bool, suffices: bool) -> None:  # noqa: FBT001
    assert (binary(version).is_safe, not binary(version).lacks) == (is_safe, suffices)


@pytest.mark.parametrize(
    ("system", "wheel", "chosen", "reason"),
    [
        (["9.1"], "9.0.2", "9.1", "newest safe"),
        (["8.1.2"], "9.0.2", "9.0.2", "newest safe"),
        (["8.1.4", "9.0.1"], "7.0.2", "9.0.1", "newest safe"),
        (["5.1.9-0+deb12u1"], "9.0.2", "9.0.2", "newest safe"),
        (["8.1.1"], "7.0.2", "7.0.2", "the wheel's, since none is safe"),
        (["7.1.1", "8.0"], None, "8.0", "since none is safe"),
        (["N-1-gabc"], "9.0.2", "9.0.2", "newest safe"),
        ([], "9.0.2", "9.0.2", "newest safe"),
        (["9.0.2"], None, "9.0.2", "newest safe"),
    ],
)
def test_the_newest_safe_one_wins_wherever_it_lies(
    system: list[str], wheel: str | None, chosen: str, reason: str
) -> None:
    choice = best_of([binary(version) for version in system], binary(wheel, "/wheel") if wheel else None)
    assert choice.binary.version == chosen
    assert reason in choice.reason
    assert len(choice.others) == len(system) + (wheel is not None) - 1


def test_of_two_alike_the_wheels_is_taken() -> None:
    assert best_of([binary("9.0.2")], binary("9.0.2", "/wheel")).binary.path == Path("/wheel")


def test_one_that_lacks_an_encoder_is_passed_over_however_new() -> None:
    poor = binary("99.0", able=ALL - {"libx264"})
    choice = best_of([poor], binary("9.0.2", "/wheel"))
    assert choice.binary.version == "9.0.2"
    assert choice.others == ((poor, "it lacks libx264"),)
    with pytest.raises(FfmpegUnfit, match=r"/usr/bin/ffmpeg lacks libx264.*CALLSHEET_FFMPEG"):
        best_of([poor], None)


def test_debians_old_one_on_the_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = program(tmp_path / "bin", "5.1.9-0+deb12u1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    choice = choose()
    assert "imageio_ffmpeg" in str(choice.binary.path)
    assert [(other.path, why) for other, why in choice.others] == [(old, "it lacks a version of 7.0 or newer")]


def test_every_program_on_the_path_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "first", "8.0.1")
    newest = program(tmp_path / "second", "99.1")
    (tmp_path / "third").mkdir()
    (tmp_path / "third" / "ffmpeg").write_text("no program")
    program(tmp_path / "fourth", "100.0")
    monkeypatch.chdir(tmp_path)
    places = [str(tmp_path / "first"), str(tmp_path / "second"), str(tmp_path / "third"), "fourth", ""]
    monkeypatch.setenv("PATH", ":".join(places))
    assert find_ffmpeg() == newest, "the newest; a relative folder of the PATH is not looked at"


def test_a_program_that_does_not_run_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_job = program(tmp_path / "bin", "9.9")
    broken_job.write_text("#!/bin/sh\nexit 3\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert "imageio_ffmpeg" in str(find_ffmpeg())
    with pytest.raises(FfmpegMissing, match="pip install imageio-ffmpeg"):
        examine(broken_job)


def test_the_setting_wins_over_everything_and_its_danger_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forced = program(tmp_path / "mine", "7.1.1", "own")
    monkeypatch.setenv("CALLSHEET_FFMPEG", str(forced))
    choice = choose()
    assert (choice.binary.path, choice.is_forced) == (forced, True)
    assert "CVE-2026-8461" in choice.danger
    with caplog.at_level(logging.WARNING):
        assert ffmpeg.__wrapped__().path == forced
    assert "7.1.1 may have known holes" in caplog.text


def test_a_forced_one_that_does_not_suffice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_FFMPEG", str(program(tmp_path / "a", "5.1.9-0+deb12u1")))
    with pytest.raises(FfmpegUnfit, match=r"CALLSHEET_FFMPEG=.* 5\.1\.9-0\+deb12u1 and lacks a version of 7\.0"):
        choose()
    monkeypatch.setenv("CALLSHEET_FFMPEG", str(program(tmp_path / "b", "9.0.2", coders="mpeg4")))
    with pytest.raises(FfmpegUnfit, match="lacks libx264, aac"):
        choose()
    monkeypatch.setenv("CALLSHEET_FFMPEG", str(tmp_path / "missing"))
    with pytest.raises(FfmpegMissing, match="CALLSHEET_FFMPEG"):
        choose()


def test_without_any_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(binaries, "in_wheel", lambda: None)
    with pytest.raises(FfmpegMissing, match="no ffmpeg is installed"):
        find_ffmpeg()


def test_trained_data_for_reading_text_is_found() -> None:
    assert (tessdata.folders()[0] / "eng.traineddata").is_file()
