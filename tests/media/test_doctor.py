from __future__ import annotations

from pathlib import Path

import pytest

from callsheet.cli.check_machine import check_machine
from callsheet.cli.findings import Finding, Mark
from callsheet.media import binaries, box
from callsheet.media.binaries import Binary
from callsheet.media.box import Walls
from callsheet.media.errors import FfmpegMissing


def found(name: str) -> Finding:
    (finding,) = [finding for finding in check_machine() if finding.name == name]
    return finding


def version(text: str) -> Binary:
    return Binary(Path("/usr/bin/ffmpeg"), text, frozenset(), frozenset())


@pytest.mark.parametrize(
    ("text", "mark", "advice"),
    [
        ("8.1.3", Mark.GOOD, ""),
        ("5.1.9-0+deb12u1", Mark.GOOD, ""),
        ("7.0.2-static", Mark.WARNING, "older than 8.1.3"),
        ("4.4.2-0ubuntu0.22.04.1", Mark.WARNING, "install 5.1 or newer"),
    ],
)
def test_the_version_of_ffmpeg_is_told(monkeypatch: pytest.MonkeyPatch, text: str, mark: Mark, advice: str) -> None:
    monkeypatch.setattr(binaries, "ffmpeg", lambda: version(text))
    finding = found("ffmpeg")
    assert finding.mark is mark
    assert text in finding.text
    assert advice in finding.advice


def test_a_missing_ffmpeg_is_a_warning_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Binary:
        raise FfmpegMissing("no ffmpeg is installed; do this")

    monkeypatch.setattr(binaries, "ffmpeg", missing)
    finding = found("ffmpeg")
    assert (finding.mark, finding.text) == (Mark.WARNING, "no ffmpeg is installed")
    assert "apt install ffmpeg" in finding.advice


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
    monkeypatch.setattr(box, "walls", lambda: walls)
    finding = found("ffmpeg sandbox")
    assert finding.mark is mark
    assert text in finding.text


def test_tesseract_and_its_languages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "eng" in found("tesseract").text
    monkeypatch.setattr(binaries, "find_tessdata", lambda: None)
    assert found("tesseract").mark is Mark.WARNING
