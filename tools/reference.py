"""Writes `docs/reference` from the code: flags, settings, events, errors, public names: `make reference`.

`command-line.md` keeps its prose; its tables are replaced and missing commands are added. The other pages are generated
whole. `tests/docs/test_reference.py` fails when a page differs from the generated text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from callsheet.cli import cli

from .pages import errors_page, events_page, python_page, settings_page

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
HEAD = "| flag | variable | default | |\n|---|---|---|---|\n"
TABLE = re.compile(r"^\| flag \| variable \| default \| \|\n(?:\|.*\n?)+", re.MULTILINE)
SECTION = re.compile(r"^##+ (callsheet .*)\n", re.MULTILINE)


def commands(group: click.Group, path: str = "callsheet") -> Iterator[tuple[str, click.Command]]:
    """Every command and group by its whole name, in the order of the help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def table_of(command: click.Command) -> str:
    """Render the table of a command's flags."""
    return HEAD + "".join(_row(param) for param in command.params if isinstance(param, click.Option))


def _row(option: click.Option) -> str:
    names = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    variables = ", ".join(f"`{name}`" for name in names)
    default = f"`{option.default}`" if isinstance(option.default, str) else ""
    help_text = option.help or ""
    if isinstance(option.type, click.Choice):
        help_text += f" One of {', '.join(f'`{choice}`' for choice in option.type.choices)}."
    return f"| `{option.opts[0]}` | {variables} | {default} | {help_text} |\n"


def command_line_page(text: str) -> str:
    """Return the page with tables from the code and one section per command."""
    head, parts = _split(text)
    commands_by_name = dict(commands(cli))
    lines = []
    for name, command in commands_by_name.items():
        body = parts.get(name) or _new(command)
        if not isinstance(command, click.Group):
            body = TABLE.sub(table_of(command).replace("\\", r"\\"), body, count=1)
        level = "#" * name.count(" ") + "#"
        lines.append(f"{level} {name}\n\n{body.strip()}\n")
    return head.strip() + "\n\n" + "\n".join(lines)


def _split(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first command, and the text of each command."""
    headings = list(SECTION.finditer(text))
    ends = [match.start() for match in headings[1:]] + [len(text)]
    parts = {match[1].strip(): text[match.end() : end] for match, end in zip(headings, ends, strict=True)}
    return text[: headings[0].start()], parts


def _new(command: click.Command) -> str:
    """A section from the command's own help."""
    examples = re.findall(r"^  (callsheet .*)$", command.epilog or "", re.MULTILINE)
    console = "```console\n" + "".join(f"$ {line}\n" for line in examples) + "```\n\n" if examples else ""
    help_text = " ".join((command.help or "").split())
    return console + help_text + ("" if isinstance(command, click.Group) else "\n\n" + table_of(command))


def pages() -> dict[Path, str]:
    """Return the expected text of each page."""
    line = FOLDER / "command-line.md"
    commands_by_name = {name: command for name, command in commands(cli) if not isinstance(command, click.Group)}
    return {
        line: command_line_page(line.read_text("utf-8")),
        FOLDER / "settings.md": settings_page(commands_by_name),
        FOLDER / "events.md": events_page(),
        FOLDER / "errors.md": errors_page(),
        FOLDER / "python.md": python_page(),
    }


def main() -> int:
    """Write all pages and print the changed ones."""
    for path, text in pages().items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            sys.stdout.write(f"wrote {path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
