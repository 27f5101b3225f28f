"""Imports the app that `module:app` names. An error in the user's code is reported in one line."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import callsheet
from callsheet.app import Callsheet

from .errors import WrongInput, check_url

OURS = f"{Path(callsheet.__file__).parent}{os.sep}"


class Places(NamedTuple):
    """URLs from flags; None leaves the app's own."""

    database_url: str | None = None
    redis_url: str | None = None
    objects_url: str | None = None
    catalog_url: str | None = None

    def apply_to(self, app: Callsheet) -> Callsheet:
        """Replace the URLs of an app, and return the app."""
        for name, url in self._asdict().items():
            if url is not None:
                setattr(app, name, url)
        return app


def load_app(target: str, places: Places = Places(), *, debug: bool = False) -> Callsheet:  # noqa: B008 - a tuple
    """Import an app with the current folder on the path; raises WrongInput."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module_name, colon, name = target.partition(":")
    if module_name.endswith(".py") or os.sep in module_name:
        module_path = module_name.removesuffix(".py").strip("./").replace(os.sep, ".")
        raise WrongInput(f"{target!r} is a file; write the module: {module_path}{colon}{name}")
    module = _import(module_name, debug=debug)
    app = places.apply_to(_app_named(module, name) if name else _only_one(module))
    check_url(app.database_url)
    return app


def _import(name: str, *, debug: bool) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything
        if debug:
            traceback.print_exc()
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise WrongInput(f"no module {error.name!r} in {Path.cwd()} or on the Python path") from None
        raise WrongInput(f"cannot import {name}: {_summary(error)}") from None


def _summary(error: BaseException) -> str:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message} ({_location(error)})"


def _location(error: BaseException) -> str:
    """Return the file and line in the user's code: the deepest frame outside of ours and of the import machinery."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_machinery(f.filename)]
    return f"{_short(frames[-1].filename)}:{frames[-1].lineno}" if frames else "no place known"


def _is_machinery(filename: str) -> bool:
    return filename.startswith(("<frozen", OURS)) or filename == importlib.__file__


def _short(filename: str) -> str:
    """Return a path relative to the current folder, if it is below it."""
    return filename.removeprefix(f"{Path.cwd()}{os.sep}")


def _app_named(module: ModuleType, name: str) -> Callsheet:
    try:
        app = reduce(getattr, name.split("."), module)
    except AttributeError:
        apps = ", ".join(f"{module.__name__}:{each}" for each in _apps(module)) or "none"
        raise WrongInput(f"{module.__name__} has no {name!r}; its apps: {apps}") from None
    if not isinstance(app, Callsheet):
        kind = type(app).__name__
        raise WrongInput(f"{module.__name__}:{name} is no Callsheet, it is a {kind}; write app = Callsheet()")
    return app


def _only_one(module: ModuleType) -> Callsheet:
    apps = _apps(module)
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    if not apps:
        raise WrongInput(f"{module.__name__} holds no Callsheet; write app = Callsheet() there")
    choice = " or ".join(f"{module.__name__}:{name}" for name in apps)
    raise WrongInput(f"{module.__name__} holds several apps; write {choice}")


def _apps(module: ModuleType) -> dict[str, Callsheet]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Callsheet)}
