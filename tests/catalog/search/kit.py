"""Short ways to fill a catalogue with lines and to ask it."""

from __future__ import annotations

import hashlib
from typing import Any

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Box, NewEntity, NewSegment, Reader
from callsheet.catalog.search.records import Found, Hit, Query
from tests.catalog.search.corpus import put

Row = tuple[NewSegment, list[NewEntity]]


def row(i: int, text: str, *, entities: tuple[tuple[str, str], ...] = (), **more: Any) -> Row:
    """A segment one second long that begins with the second of its number."""
    segment_id = f"s{i:03}"
    digest = hashlib.sha256(text.casefold().encode()).hexdigest()
    box = Box(10 + i, 20, 300, 40)
    new = NewSegment(segment_id, 1000 * i, 1000 * (i + 1), text, text.casefold(), digest, 0.9, box, "en", True)
    results = [
        NewEntity(f"{segment_id}e{n}", segment_id, kind, v, v.casefold()) for n, (kind, v) in enumerate(entities)
    ]
    return new._replace(**more), results


async def fill(catalog: Catalog, number: int, *lines: str | Row, owner: str = "ann", team: str | None = None) -> str:
    """Add a video with these lines, one per second."""
    rows = [row(i, line) if isinstance(line, str) else line for i, line in enumerate(lines)]
    return await put(catalog, number, owner, team, rows)


async def ask(catalog: Catalog, text: str = "", reader: Reader = SERVICE, **more: Any) -> Found:
    return await catalog.search(Query(text, **more), reader)


async def texts(catalog: Catalog, text: str = "", reader: Reader = SERVICE, **more: Any) -> list[str]:
    """The texts of the hits in order."""
    return [hit.text for hit in (await ask(catalog, text, reader, **more)).hits]


def marked(hit: Hit) -> list[tuple[str, str]]:
    """Return the highlighted texts of a hit, with their kinds."""
    return [(hit.text[mark.start : mark.end], mark.matched_as) for mark in hit.marks]
