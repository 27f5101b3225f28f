"""Makes click options from the tables of settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callsheet.kernel.errors import InvalidInput
from callsheet.settings import Kind, Setting, parse

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic only in newer versions of click

F = TypeVar("F", bound=Callable[..., Any])


class SettingType(ParamType):
    """Parses the text of an option as a setting of its kind is parsed everywhere."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.name = "host:port" if kind is Kind.ADDRESS else kind.value

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the parsed value; fails as click's own types do."""
        if not isinstance(value, str):
            return value
        try:
            return parse(self._kind, value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class SwitchType(click.types.BoolParamType):
    """An on-off switch. A duration in its variable is off: a service uses the same variable for a duration."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Return whether the switch is on."""
        try:
            return bool(super().convert(value, param, ctx))
        except click.BadParameter:
            with contextlib.suppress(InvalidInput):
                return bool(parse(Kind.SWITCH, str(value)))
            raise


SWITCH = SwitchType()
TYPES: dict[Kind, ParamType] = {
    Kind.TEXT: click.STRING,
    Kind.EACH: click.STRING,
    Kind.NUMBER: click.INT,
    Kind.COUNT: click.IntRange(min=1),
    Kind.DURATION: SettingType(Kind.DURATION),
    Kind.MOMENT: SettingType(Kind.MOMENT),
    Kind.NAMES: SettingType(Kind.NAMES),
    Kind.ADDRESS: SettingType(Kind.ADDRESS),
    Kind.FOLDER: click.Path(file_okay=False, path_type=Path),
    Kind.FILE: click.Path(dir_okay=False, path_type=Path),
}


def settings(table: tuple[Setting, ...]) -> Callable[[F], F]:
    """Give a command an option for each setting of a table, with its environment variable."""

    def decorate(function: F) -> F:
        for setting in reversed(table):
            function = _option(setting)(function)
        return function

    return decorate


def _option(setting: Setting) -> Callable[[F], F]:
    arguments: dict[str, Any] = {
        "help": setting.help,
        "default": setting.default,
        "show_default": bool(setting.default),
    }
    if setting.from_environment:
        names = [setting.variable, *setting.also] if setting.also else setting.variable
        arguments |= {"envvar": names, "show_envvar": True}
    if setting.kind is Kind.SWITCH:
        return click.option(
            setting.flag, is_flag=True, type=SWITCH, **{**arguments, "default": False, "show_default": False}
        )
    kind = click.Choice(setting.choices) if setting.choices else TYPES[setting.kind]
    return click.option(setting.flag, type=kind, multiple=setting.kind is Kind.EACH, **arguments)
