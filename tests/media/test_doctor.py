from __future__ import annotations

from pathlib import Path

import pytest

from callsheet.cli.doctor.findings import Finding, Mark
from callsheet.cli.doctor.machine import check_machine
from callsheet.media import binaries
from callsheet.media.binaries import Binary, Choice
from callsheet.media.errors import FfmpegMissing, FfmpegUnfit
from callsheet.media.ocr import tessdata
from callsheet.sandbox import command
from callsheet.sandbox.command import Walls


def found(name: str) -> Finding:
    (finding,) = [finding for finding in check_machine() if finding.name == name]
    return finding


def choice(version: str, *others: tuple[str, str]) -> Choice:
    passed_over = tuple((_binary(number), why) for number, why in others)
    return Choice(_binary(version), "the newest safe one", others=passed_over)


def _binary(version: str) -> Binary:
    return Binary(Path("/usr/bin/ffmpeg"), version, frozenset(), frozenset())


@pytest.mark.parametrize(
    ("text", "mark", "advice"),
    [
        ("9.0.2", Mark.GOOD, ""),
        ("8.1.2", Mark.GOOD, ""),
        ("8.1.1", Mark.WARNING, "8.0.3, 8.1.2 or 9.0"),
        ("5.1.9-0+deb12u1", Mark.WARNING, "CVE-2026-8461"),
        ("7.0.2-static", Mark.WARNING, "pip install imageio-ffmpeg"),
        ("N-117000-gabcdef", Mark.WARNING, "names no release"),
    ],
)
def test_the_version_of_ffmpeg_and_why_it_is_used_are_told(
    monkeypatch: pytest.MonkeyPatch, text: str, mark: Mark, advice: str
) -> None:
    monkeypatch.setattr(binaries, "choose", lambda: choice(text))
    finding = found("ffmpeg")
    assert finding.mark is mark
    assert text in finding.text
    assert "the newest safe one" in finding.text
    assert advice in finding.advice


def test_one_that_is_passed_over_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "choose", lambda: choice("9.0.2", ("5.1.9", "it is too old")))
    finding = found("other ffmpeg")
    assert (finding.mark, finding.text) == (Mark.WARNING, "5.1.9, /usr/bin/ffmpeg: not used, it is too old")


def test_a_missing_ffmpeg_is_a_warning_and_an_unfit_one_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Choice:
        raise FfmpegMissing("no ffmpeg is installed; do this")

    def unfit() -> Choice:
        raise FfmpegUnfit("it lacks libx264; do that")

    monkeypatch.setattr(binaries, "choose", missing)
    finding = found("ffmpeg")
    assert (finding.mark, finding.text) == (Mark.WARNING, "no ffmpeg is installed")
    assert "pip install imageio-ffmpeg" in finding.advice
    monkeypatch.setattr(binaries, "choose", unfit)
    assert found("ffmpeg") == Finding(Mark.BAD, "ffmpeg", "it lacks libx264", "do that")


@pytest.mark.parametrize(("bundled", "mark"), [("8.1.2", Mark.GOOD), ("8.1.1", Mark.WARNING), ("", Mark.WARNING)])
def test_the_libraries_inside_pyav_are_told(monkeypatch: pytest.MonkeyPatch, bundled: str, mark: Mark) -> None:
    monkeypatch.setattr(binaries, "version_of_pyav", lambda: bundled)
    assert found("PyAV").mark is mark


@pytest.mark.parametrize(
    ("walls", "mark", "text"),
    [
        (Walls(namespace=True, seccomp=True, landlock=True), Mark.GOOD, "no network, sees its own files only"),
        (Walls(seccomp=True, landlock=True), Mark.GOOD, "no network"),
        (Walls(namespace=True), Mark.WARNING, "sees all files of this user"),
        (Walls(landlock=True), Mark.WARNING, "network open"),
        (Walls(), Mark.WARNING, "network open"),
    ],
)
def test_what_the_sandbox_keeps_out_is_told(
    monkeypatch: pytest.MonkeyPatch, walls: Walls, mark: Mark, text: str
) -> None:
    monkeypatch.setattr(command, "walls", lambda: walls)
    finding = found("ffmpeg sandbox")
    assert finding.mark is mark
    assert text in finding.text


def test_tesseract_and_its_languages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "eng" in found("tesseract").text
    monkeypatch.setattr(tessdata, "folders", list)
    assert found("tesseract").mark is Mark.WARNING
