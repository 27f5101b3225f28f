from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from callsheet import settings
from callsheet.cli import ENTRIES, cli
from callsheet.kernel.durations import seconds
from callsheet.worker.options import Options
from tests.cli.conftest import Shop

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
# These say what one call does or how it prints. Left in an environment they would change calls that did not ask:
# a forgotten CALLSHEET_YES would answer a question that was never shown.
OF_ONE_COMMAND = {  # of a server elsewhere, or of one schedule
    ("callsheet quotas set", "--streams"),
    ("callsheet quotas set", "--uploads"),
    *(
        ("callsheet schedules put", flag)
        for flag in ("--cron", "--every", "--timezone", "--missed", "--queue", "--priority", "--max-attempts")
    ),
}
OF_ONE_CALL = {
    "--json",
    "--yes",
    "--retry-all",
    "--after",
    "--requester",
    "--scope",
    "--expires",
    "--rate",
    "--only",
    "--slow",
    "--enqueue",
    "--undo",
    "--prepare",
    "--all",
    "--overlap",
    "--detach",
    "--exit",
    "--format",
    "--home",
    "--languages",
    "--mode",
    "--output",
    "--queued",
    "--running",
    "--bytes",
    "--tenant",
    "--action",
    "--actor",
    "--since",
    "--until",
    "--owner",
    "--padding",
    "--team",
    "--title",
    "--video",
}


def commands(group: click.Group, path: tuple[str, ...] = ("callsheet",)) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its whole name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


ALL = dict(commands(cli))


def flags(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option)]


def section(name: str) -> str:
    """Return the reference's section about a command."""
    match = re.search(rf"^##+ {name}\n(.*?)(?=^##|\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert match, f"{PAGE.name} has no section {name}"
    return match[1]


@pytest.mark.parametrize(("name", "sentence"), [(name, entry.help) for name, entry in ENTRIES.items()])
def test_the_list_of_commands_says_what_each_says_of_itself(name: str, sentence: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.get_short_help_str(120) == sentence


@pytest.mark.parametrize("name", ALL)
def test_every_flag_has_its_variable(name: str) -> None:
    for option in flags(ALL[name]):
        (flag,) = option.opts
        of_one = flag in OF_ONE_CALL or (name, flag) in OF_ONE_COMMAND
        expected = None if of_one else f"CALLSHEET_{flag[2:].upper().replace('-', '_')}"
        variable = option.envvar[0] if isinstance(option.envvar, list) else option.envvar
        assert variable == expected


@pytest.mark.parametrize("name", ALL)
def test_the_reference_names_every_command_flag_and_variable(name: str) -> None:
    text = section(name)
    documented = set(re.findall(r"^\| `(--[a-z-]+)` ", text, re.MULTILINE))
    assert documented == {option.opts[0] for option in flags(ALL[name])}
    for option in flags(ALL[name]):
        for variable in [option.envvar] if isinstance(option.envvar, str) else option.envvar or ():
            assert f"`{variable}`" in text
        assert not isinstance(option.default, str) or f"`{option.default}`" in text


@pytest.mark.parametrize("name", ALL)
def test_help_explains_and_gives_an_example(name: str, tmp_path: Path) -> None:
    result = Shop(tmp_path, "", "").cli(*name.split()[1:], "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert name in result.stdout
    assert all(option.help for option in flags(ALL[name]))


def test_help_lists_all_commands_by_section(tmp_path: Path) -> None:
    output = Shop(tmp_path, "", "").cli("--help").stdout
    for words in ("Run it:", "Jobs:", "Look after a store:", *(name.split()[1] for name in ALL)):
        assert words in output


def test_the_workers_defaults_are_those_of_the_library() -> None:
    library = Options()
    for setting in settings.WORKER:
        own = getattr(library, setting.name.replace("-", "_"), None)
        if setting.default is not None and own is not None:
            assert seconds(setting.default) == own, setting.name


def test_migrate_says_what_it_did(shop: Shop) -> None:
    shop.cli("migrate")
    assert shop.cli("migrate").stdout == "the schema is up to date\n"
    assert "applied" in shop.cli("migrate", "--database-url", "sqlite:///new.db").stdout
