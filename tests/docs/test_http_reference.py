from __future__ import annotations

import re
from pathlib import Path

from callsheet.asgi import ROUTERS
from callsheet.engine import Engine
from callsheet.http.problems import STATUSES
from callsheet.http.server import create_app

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text("utf-8")


async def test_the_reference_names_every_route() -> None:
    paths = create_app(Engine.from_url("sqlite::memory:"), ROUTERS).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
    assert set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", PAGE, re.MULTILINE)) == routes


def test_the_reference_names_every_error() -> None:
    status_of_code = dict(re.findall(r"^\| `([a-z_]+)` \| (\d+) \|", PAGE, re.MULTILINE))
    assert status_of_code == {code: str(status) for code, status in STATUSES.items()}
