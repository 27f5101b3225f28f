"""The table of layers in AGENTS.md is the one that `make check` holds imports to."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_for_agents_is_the_law() -> None:
    law = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0]
    layers = [set(re.findall(r"\w+", layer)) for layer in law["layers"]]
    table = (ROOT / "AGENTS.md").read_text("utf-8").partition("| layer |")[2].partition("\n## ")[0]
    table_rows = [
        set(re.findall(r"`(\w+)`", row.split("|")[1])) for row in table.splitlines()[2:] if row.startswith("|")
    ]
    assert table_rows == layers
