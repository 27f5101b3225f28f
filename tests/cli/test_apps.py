from __future__ import annotations

import pytest

from tests.cli.conftest import Shop

TWO = "from callsheet import Callsheet\none = Callsheet()\ntwo = Callsheet()\n"
TWICE = """from callsheet import Callsheet
app = Callsheet()
app.task(name="x")(print and (lambda: None))
app.task(name="x")(lambda: None)
"""


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (
            "import nowhere.at_all",
            ":app",
            "cannot import {m}: ModuleNotFoundError: No module named 'nowhere' ({m}.py:1)",
        ),
        ("\n\n1 / 0", ":app", "cannot import {m}: ZeroDivisionError: division by zero ({m}.py:3)"),
        ("def f():\n  return (", "", "cannot import {m}: SyntaxError: '(' was never closed ({m}.py:2)"),
        ("raise SystemExit('no\\nway')", "", "cannot import {m}: SystemExit: no way ({m}.py:1)"),
        (
            TWICE,
            "",
            "cannot import {m}: InvalidTask: two tasks are called 'x'; give one of them another name= ({m}.py:4)",
        ),
        (TWO, ":app", "{m} has no 'app'; its apps: {m}:one, {m}:two"),
        (TWO, "", "{m} holds several apps; write {m}:one or {m}:two"),
        (TWO, ":Callsheet.nothing", "{m} has no 'Callsheet.nothing'; its apps: {m}:one, {m}:two"),
        ("app = 1", ":app", "{m}:app is no Callsheet, it is a int; write app = Callsheet()"),
        ("app = 1", "", "{m} holds no Callsheet; write app = Callsheet() there"),
        ("app = 1", ".py:app", "'{m}.py:app' is a file; write the module: {m}:app"),
    ],
)
def test_an_app_that_cannot_be_had_is_one_line(shop: Shop, source: str, target: str, message: str) -> None:
    (shop.folder / f"{shop.module}.py").write_text(source)
    result = shop.cli("worker", f"{shop.module}{target}")
    assert result.exit_code == 2
    assert result.stderr == f"callsheet: {message.format(m=shop.module)}\n"


def test_debug_shows_the_traceback(shop: Shop) -> None:
    (shop.folder / f"{shop.module}.py").write_text("1 / 0")
    result = shop.cli("worker", shop.app, "--log-level", "debug")
    assert result.exit_code == 2
    assert "Traceback (most recent call last)" in result.stderr


def test_without_a_name_the_only_app_is_taken_also_in_a_package(shop: Shop) -> None:
    package = shop.folder / f"{shop.module}_more"
    package.mkdir()
    (package / "tasks.py").write_text((shop.folder / f"{shop.module}.py").read_text())
    result = shop.cli("enqueue", f"{package.name}.tasks:", "add", '{"a": 1}')
    assert result.exit_code == 0, result.stderr
