"""`make deep` runs each suite by its own target, and reports failures and suites that did not run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import deep

ROOT = Path(__file__).parents[2]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.faults.test_a" name="test_one"/>
<testcase classname="tests.faults.test_a" name="test_two"><failure/></testcase>
<testcase classname="tests.faults.test_a" name="test_three"><error/></testcase>
<testcase classname="tests.faults.test_a" name="test_four"><skipped/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize("suite", deep.SUITES)
def test_a_suite_is_run_as_its_own_target_runs_it(suite: str) -> None:
    (recipe,) = re.findall(rf"^{suite}: .*\n\t(.*)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert recipe == f"CALLSHEET_DEEP=1 $(BIN)/python -m pytest {' '.join(deep.SUITES[suite])} $(ARGS)"


def test_a_report_is_counted(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT, "utf-8")
    ran = deep.read_report("faults", tmp_path / "report.xml", 90.0)
    assert ran[:3] == ("faults", 1, 1)
    assert ran.problems == ("tests/faults/test_a.py::test_two", "tests/faults/test_a.py::test_three")
    assert deep.table([ran]) == (
        "suite   passed  failed  skipped  minutes\n"
        "faults  1       2       1        1.5\n"
        "failed: tests/faults/test_a.py::test_two\n"
        "failed: tests/faults/test_a.py::test_three"
    )


def test_a_suite_that_did_not_run_has_not_passed(tmp_path: Path) -> None:
    assert deep.read_report("faults", tmp_path / "report.xml", 0.0).problems == (f"faults {deep.DID_NOT_RUN}",)


def test_a_suite_that_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert deep.main(["mutants"]) == 2
    assert "mutations, differential, faults" in capsys.readouterr().err
