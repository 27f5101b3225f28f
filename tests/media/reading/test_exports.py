from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import av
import hypothesis
import pytest
from hypothesis import strategies as st

from callsheet.media.reading.exports import MEDIA_TYPES, WRITERS
from callsheet.media.reading.normalise import display_form, normalized, text_hash
from callsheet.media.reading.records import Range

NASTY = [
    'He said "no", then left',
    "1\n00:00:01,000 --> 00:00:09,000\nforged",
    "a --> b",
    "<b>bold</b> & <v Bob>spoken",
    "{\\an8}top",
    "&lt; stays",
    "=HYPERLINK(1)",
    "@marta",
    "+49 30",
    "-1",
    "日本語 ünïcode 👍",
]


def a_range(text: str, t_start: int = 0, t_end: int = 1000) -> Range:
    return Range(t_start, t_end, text, normalized(text), text_hash(text), 0.91234, (1, 2, 3, 4), "eng", 3)


RANGES = [a_range(text, 3_600_000 + 2000 * at, 3_600_000 + 2000 * at + 1234) for at, text in enumerate(NASTY)]


def written(form: str, ranges: list[Range]) -> str:
    return "".join(WRITERS[form](ranges))  # type: ignore[index]


def cues(path: Path) -> list[tuple[int, int, str]]:
    """As a player's library reads them."""
    with av.open(str(path)) as container:
        return [
            (packet.pts or 0, (packet.pts or 0) + (packet.duration or 0), bytes(packet).decode())
            for packet in container.demux()
            if packet.size
        ]


@pytest.mark.parametrize("form", ["vtt", "srt"])
def test_a_player_reads_each_cue_at_its_time_with_its_text(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"text.{form}"
    path.write_text(written(form, RANGES), encoding="utf-8")
    result = cues(path)
    assert [(start, end) for start, end, _ in result] == [(one.t_start, one.t_end) for one in RANGES]
    for (_, _, payload), one in zip(result, RANGES, strict=True):
        plain = payload.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") if form == "vtt" else payload
        assert display_form(plain) == display_form(one.text)
        assert "-->" not in payload
        assert form != "vtt" or "<" not in payload
        assert form != "srt" or "<b>" not in payload


def test_webvtt_begins_with_its_name_and_separates_cues_by_empty_lines() -> None:
    assert written("vtt", [a_range("Hello", 61_001, 3_661_002)]) == (
        "WEBVTT\n\n1\n00:01:01.001 --> 01:01:01.002\nHello\n"
    )
    assert written("vtt", []) == "WEBVTT\n"


def test_a_cue_has_a_length() -> None:
    assert "00:00:01.000 --> 00:00:01.001" in written("vtt", [a_range("x", 1000, 1000)])


def test_csv_is_read_back_and_runs_nothing_in_a_spreadsheet() -> None:
    rows = list(csv.DictReader(io.StringIO(written("csv", RANGES), newline=""), strict=True))
    for row, one in zip(rows, RANGES, strict=True):
        assert row["text"].removeprefix("'") == display_form(one.text)
        assert not row["text"].startswith(("=", "+", "-", "@"))
        assert (row["t_start_ms"], row["end"], row["x"]) == (str(one.t_start), row["end"], "1")
    assert written("csv", []).startswith("start,end,t_start_ms")


def test_json_has_all_that_is_known() -> None:
    result = json.loads(written("json", RANGES))["segments"]
    assert [one["text"] for one in result] == NASTY
    assert result[0]["bounding_box"] == {"x": 1, "y": 2, "width": 3, "height": 4}
    assert json.loads(written("json", [])) == {"segments": []}


def test_each_form_has_its_media_type() -> None:
    assert set(MEDIA_TYPES) == set(WRITERS)


@hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.lists(st.text(alphabet=st.characters()), max_size=4))
def test_any_text_can_be_written(texts: list[str]) -> None:
    ranges = [a_range(display_form(text), at, at + 1) for at, text in enumerate(texts)]
    assert written("vtt", ranges).count("-->") == len(texts)
    assert written("srt", ranges).count("-->") == len(texts)
    rows = list(csv.reader(io.StringIO(written("csv", ranges), newline=""), strict=True))
    assert len(rows) == len(texts) + 1
    assert len(json.loads(written("json", ranges))["segments"]) == len(texts)
    for form in WRITERS:
        written(form, ranges).encode()
