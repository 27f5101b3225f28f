"""The type check, which `make check` runs over all modules of the studio, would not pass for everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_types


def test_a_type_error_is_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_types.install()
    (tmp_path / "client.js").write_text((check_types.STATIC / "client.js").read_text("utf-8"), "utf-8")
    page = tmp_path / "page.js"
    page.write_text('import { CallsheetClient } from "./client.js";\nnew CallsheetClient({ url: 1 });\n', "utf-8")
    assert check_types.check(page) != 0
    assert "Type 'number' is not assignable to type 'string" in capfd.readouterr().out
