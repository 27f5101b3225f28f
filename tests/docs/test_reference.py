"""`docs/reference` is what `make reference` writes from the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from callsheet.contracts.aura.projection import TYPES
from tools import pages, reference

ROOT = Path(__file__).parents[2]
HIDDEN = {"CALLSHEET_INTERNAL_CHILD"}  # of a worker that was started by another
WRITTEN = reference.pages()


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_a_page_is_what_the_code_says(path: Path) -> None:
    assert path.read_text("utf-8") == WRITTEN[path], "run `make reference`"


def test_writing_again_changes_nothing() -> None:
    page = WRITTEN[reference.FOLDER / "command-line.md"]
    assert reference.command_line_page(page) == page


def test_every_variable_of_the_code_is_in_the_settings() -> None:
    text = WRITTEN[reference.FOLDER / "settings.md"]
    assert pages.variables_in_code() - HIDDEN <= set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", text))


def test_every_event_of_the_code_is_told() -> None:
    assert set(pages.EVENTS) == pages.events_in_code()
    assert set(pages.LIVE) == set(TYPES)


def test_a_new_command_gets_a_section_of_its_own() -> None:
    page = WRITTEN[reference.FOLDER / "command-line.md"]
    before, _, after = page.partition("## callsheet scan\n")
    without = before + re.sub(r"\A.*?(?=^## )", "", after, flags=re.DOTALL | re.MULTILINE)
    again = reference.command_line_page(without)
    assert "## callsheet scan\n\n```console\n$ callsheet scan --objects-url s3://media\n" in again
