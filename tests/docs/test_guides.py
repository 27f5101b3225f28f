"""The guides keep their word: their Python runs in order, page by page, and their commands exist with those flags.

The marker `<!-- not run: reason -->` before a block skips it and `<!-- run: code -->` runs a line that readers do not
see. A block that begins with `# name.py` becomes that file and is imported. `print(x)  # → y` has to print y.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import click
import pytest

from callsheet.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "guides").glob("*.md"))
RUN = [page for page in PAGES if page.stem != "metrics"]  # its blocks are fragments
PART = re.compile(
    r"<!-- not run: (?P<reason>.*?) -->\n+```python\n.*?^```$"
    r"|<!-- run: (?P<hidden>.*?) -->"
    r"|^```python\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
FILE = re.compile(r"# (\w+)\.py\n")
PRINTS = re.compile(r"# → (.+)$", re.MULTILINE)
MOST_NOT_RUN = 3
GUIDES = {"first-job", "choosing-a-store", "writing-tasks", "testing", "production", "moving"}


class Code(NamedTuple):
    """A piece of a page that runs."""

    text: str
    line: int


def code_of(page: Path) -> Iterator[Code]:
    text = page.read_text("utf-8")
    for part in PART.finditer(text):
        if part["reason"] is None:
            yield Code(part["hidden"] or part["code"], text.count("\n", 0, part.start()) + 1)


def commands_of(page: Path) -> list[list[str]]:
    """Every `callsheet …` of a page: in console blocks, in the text, in units (ExecStart=), in manifests (JSON)."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    console_text = "\n".join(re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    lines = re.findall(r"^\$ (?:\w+=\S+ )*(callsheet .*)$", console_text, re.MULTILINE)
    lines += re.findall(r"`(callsheet [^`]*)`", text)
    lines += re.findall(r"^ExecStart\w*=\S*?(callsheet .*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines] + [
        json.loads(matches)[1:] for matches in re.findall(r'(\["callsheet".*?\])', text)
    ]


def run_page(page: Path) -> None:
    """Run the page's code in a separate process, in an empty folder: see `test_the_code_of_a_page_runs`."""
    module_of_page = sys.modules["guide"] = ModuleType("guide")
    names: dict[str, Any] = vars(module_of_page)
    sys.path.insert(0, str(Path.cwd()))
    with asyncio.Runner() as runner:
        for code in code_of(page):
            module = FILE.match(code.text)
            if module is not None:
                Path(f"{module[1]}.py").write_text(code.text, "utf-8")
            text = f"from {module[1]} import *" if module is not None else code.text
            lined = "\n" * code.line + text
            compiled = compile(lined, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            if compiled.co_flags & inspect.CO_COROUTINE:
                runner.run(eval(compiled, names))
            else:
                exec(compiled, names)


def of_page(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", RUN, ids=of_page)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CALLSHEET_")}
    run = subprocess.run(
        [sys.executable, __file__, str(page)],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}", "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=240,  # a net for what hangs
        check=False,
    )
    assert run.returncode == 0, run.stderr
    printed = iter(run.stdout.splitlines())
    for line in (line for code in code_of(page) for line in PRINTS.findall(code.text)):
        assert line in printed, f"{line!r} is not printed where {page.name} says so:\n{run.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_little_is_not_run_and_says_why(page: Path) -> None:
    reasons = [part["reason"] for part in PART.finditer(page.read_text("utf-8")) if part["reason"] is not None]
    assert len(reasons) <= MOST_NOT_RUN
    assert all(len(reason.split()) > 1 for reason in reasons)


COMMANDS = [pytest.param(args, id=f"{page.stem}: {shlex.join(args)}") for page in PAGES for args in commands_of(page)]


@pytest.mark.parametrize("args", COMMANDS)
def test_a_command_exists_with_its_flags(args: list[str]) -> None:
    command: click.Command = cli
    context: click.Context | None = None
    name: str | None = "callsheet"
    while isinstance(command, click.Group):
        context = command.make_context(name, list(args), parent=context, allow_interspersed_args=False)
        rest = [*context._protected_args, *context.args]
        name, result, args = command.resolve_command(context, rest)
        assert result is not None, rest
        command = result
    command.make_context(name, list(args), parent=context)


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_links_into_a_page_find_their_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text("utf-8")):
        headings = re.findall(r"^#+ (.+)$", (page.parent / (target or page.name)).read_text("utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_there_are_guides() -> None:
    assert {page.stem for page in PAGES} >= GUIDES
    assert COMMANDS


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
