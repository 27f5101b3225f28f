"""`make check` keeps the words of the program plain: the measured figures, and a failure above budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_words
from tools.check_words import Budget, is_participle, is_vague, measure


@pytest.mark.parametrize(
    ("name", "expected"),
    [("found", True), ("_told", True), ("expired", True), ("rows", False), ("is_found", False), ("seed", False)],
)
def test_a_lone_participle_is_seen(name: str, *, expected: bool) -> None:
    assert is_participle(name) is expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("What it is that they have of it.", True),
        ("Return the queued jobs whose dependency failed.", False),
        ("Done.", False),
    ],
)
def test_a_sentence_that_names_nothing_is_seen(sentence: str, *, expected: bool) -> None:
    assert is_vague(sentence) is expected


def test_a_folder_over_its_budget_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "bad.py").write_text('"""It."""\nfound = 1\nrows = 2\n', "utf-8")
    assert measure(tmp_path / "own") == (2, 1, 0, 0, 1)
    monkeypatch.setattr(check_words, "ROOT", tmp_path)
    monkeypatch.setattr(check_words, "BUDGETS", {"own": Budget(50, 0, 1)})
    assert check_words.main() == 0
    for less in (Budget(49, 0, 1), Budget(50, 0, 0)):
        monkeypatch.setattr(check_words, "BUDGETS", {"own": less})
        assert check_words.main() == 1
