"""The pages of the studio, as files of this package. They are clients of the public API and hold no data."""

from __future__ import annotations

import mimetypes
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from callsheet.http.problems import Problem

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
router = APIRouter(include_in_schema=False)


@router.get("/studio")
async def studio() -> Response:
    """To its first page."""
    return RedirectResponse("/studio/live.html")


@router.get("/studio/{name}")
async def page(name: str) -> Response:
    """One file of the package; there are no others to be had."""
    found = _files().get(name)
    if found is None:
        raise Problem("not_found", "the studio has no such page")
    suffix = name[name.rfind(".") :]
    kind = TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(found, headers=HEADERS, media_type=f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)


@cache
def _files() -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in files("callsheet.studio").joinpath("static").iterdir() if f.is_file()}
