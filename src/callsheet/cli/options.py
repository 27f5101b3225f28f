"""Click options made from the table of settings, and the types that read their texts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from callsheet.kernel.durations import seconds
from callsheet.kernel.errors import InvalidInput
from callsheet.settings import Kind, Setting

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic only in newer versions of click

F = TypeVar("F", bound=Callable[..., Any])
MAX_PORT = 65_535


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int


class DurationType(ParamType):
    """`30s`, `10m`, `1h30m`; stays the text that was given, which the library reads."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, once it is known to be a duration."""
        try:
            seconds(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)
        return str(value)


class MomentType(ParamType):
    """An ISO 8601 moment with its zone."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The moment; one without a zone could be anywhere and is refused."""
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no moment; write 2030-01-31T08:00:00Z", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no time zone; write {value}Z or {value}+02:00", param, ctx)
        return moment


class NamesType(ParamType):
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names in their order."""
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        if not names:
            self.fail(f"{value!r} names nothing; write a,b", param, ctx)
        return names


class AddressType(ParamType):
    """`HOST:PORT`; without a host all addresses of this machine are meant."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Host and port; an IPv6 address stands in brackets."""
        if isinstance(value, Address):
            return value
        host, colon, port = value.rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
            self.fail(f"{value!r} is no address; write 127.0.0.1:8080 or :8080", param, ctx)
        return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - asked for by leaving it out


class SwitchType(click.types.BoolParamType):
    """On or off. A length of time in its variable is of a service, where the same name means that: it is off."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Whether it is on."""
        try:
            return bool(super().convert(value, param, ctx))
        except click.BadParameter:
            with contextlib.suppress(InvalidInput):
                seconds(value)
                return False
            raise


SWITCH = SwitchType()
TYPES: dict[Kind, ParamType] = {
    Kind.TEXT: click.STRING,
    Kind.EACH: click.STRING,
    Kind.NUMBER: click.INT,
    Kind.COUNT: click.IntRange(min=1),
    Kind.DURATION: DurationType(),
    Kind.MOMENT: MomentType(),
    Kind.NAMES: NamesType(),
    Kind.ADDRESS: AddressType(),
    Kind.FOLDER: click.Path(file_okay=False, path_type=Path),
    Kind.FILE: click.Path(dir_okay=False, path_type=Path),
}


def settings(table: tuple[Setting, ...]) -> Callable[[F], F]:
    """Give a command all settings of a table, each with its environment variable."""

    def decorate(function: F) -> F:
        for setting in reversed(table):
            function = _option(setting)(function)
        return function

    return decorate


def _option(setting: Setting) -> Callable[[F], F]:
    given: dict[str, Any] = {"help": setting.help, "default": setting.default, "show_default": bool(setting.default)}
    if setting.from_environment:
        names = [setting.variable, *setting.also] if setting.also else setting.variable
        given |= {"envvar": names, "show_envvar": True}
    if setting.kind is Kind.SWITCH:
        return click.option(
            setting.flag, is_flag=True, type=SWITCH, **{**given, "default": False, "show_default": False}
        )
    kind = click.Choice(setting.choices) if setting.choices else TYPES[setting.kind]
    return click.option(setting.flag, type=kind, multiple=setting.kind is Kind.EACH, **given)
