"""Routes that serve the studio's pages: files of this package that call the public API and hold no data.

`/studio` and every path below it that names no file return the app's one page, `index.html`: its router
(`static/router.js`) reads the path. Files below `static/` are served by their path; other files are never served.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from callsheet.http.problems import Problem
from callsheet.http.state import state_of

from . import session

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from callsheet.objects import Objects

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'{storage} blob: data:; "
    "media-src 'self'{storage} blob:; connect-src 'self'{storage}; font-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
INDEX = "index.html"
MOVED_PAGES = {"live.html": "/studio/compose"}  # old addresses, which may be bookmarks
pages = APIRouter(include_in_schema=False)


class File(NamedTuple):
    """A static file, ready to be sent."""

    content: bytes
    media_type: str
    etag: str


@pages.get("/")
async def root() -> Response:
    """Redirect the server's bare address to the studio."""
    return RedirectResponse("/studio")


@pages.get("/studio")
@pages.get("/studio/{path:path}")
async def page(request: Request, path: str = "") -> Response:
    """Return the static file at `path`, or the app's page if `path` names no file; raises Problem `not_found`."""
    if path in MOVED_PAGES:
        return RedirectResponse(MOVED_PAGES[path], 308)
    file = _files().get(path)
    if file is None and "." in path.rpartition("/")[2]:
        raise Problem("not_found", "the studio has no such file")
    content = file or _files()[INDEX]
    request.scope["callsheet.quiet"] = True  # one page loads dozens of files, which would flood the log
    headers = {**HEADERS, "Content-Security-Policy": policy_for(state_of(request).objects), "ETag": content.etag}
    if request.headers.get("if-none-match") == content.etag:
        return Response(status_code=304, headers=headers)
    return Response(content.content, headers=headers, media_type=content.media_type)


def policy_for(objects: Objects | None) -> str:
    """Return the Content-Security-Policy of a page.

    It allows this server's own origin, and the storage's origin where uploads and files go straight to the storage.
    """
    return POLICY.format(storage=f" {objects.origin}" if objects is not None and objects.origin else "")


@cache
def _files() -> dict[str, File]:
    """Return all static files by path, read once at first use: no path that a client sends is opened on a disk."""
    return dict(_below(files("callsheet.studio").joinpath("static"), ""))


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, File]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        else:
            content = entry.read_bytes()
            yield (
                f"{prefix}{entry.name}",
                File(content, _type_of(entry.name), f'"{hashlib.sha256(content).hexdigest()[:32]}"'),
            )


def _type_of(name: str) -> str:
    kind = TYPES.get(name[name.rfind(".") :]) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


router = APIRouter()
router.include_router(session.router)  # before the pages, which take every path
router.include_router(pages)
