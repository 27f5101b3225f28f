"""What the doctor looks at in the objects: whether one can be written, read and deleted there."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from callsheet.engine.ids import new_id
from callsheet.objects import Objects, ObjectsError, ObjectsForbidden, ObjectsUnavailable, objects_from_url

from .findings import Finding, bad, good, warning

PATIENCE_S = 20.0
PROBE = b"callsheet doctor"


async def check_objects(url: str | None) -> list[Finding]:
    """One finding; none where no objects are set up."""
    if not url:
        return []
    try:
        objects = objects_from_url(url)
        if (folder := _missing_folder(url)) is not None:
            return [warning("objects", f"{folder} does not exist yet", "the first file that is kept makes it")]
        async with asyncio.timeout(PATIENCE_S), objects:
            return [await _probe(objects)]
    except TimeoutError:
        return [bad("objects", f"no answer within {PATIENCE_S:g} s", "is S3_ENDPOINT right, the server up?")]
    except ObjectsForbidden as error:
        return [bad("objects", f"{error}", "see S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY and what they may do")]
    except ObjectsUnavailable as error:
        return [bad("objects", f"{error}", "is S3_ENDPOINT right, the server up, the disk full?")]
    except ObjectsError as error:
        return [bad("objects", f"{error}", "see --objects-url and CALLSHEET_OBJECTS_URL")]


def _missing_folder(url: str) -> Path | None:
    """The folder when it is not there: looking must not make it."""
    parts = urlsplit(url)
    folder = Path(unquote(parts.path))
    return folder if parts.scheme == "file" and not folder.exists() else None


async def _probe(objects: Objects) -> Finding:
    key = f"doctor/{new_id()}"
    begun = time.perf_counter()
    await objects.put(key, PROBE, only_if_absent=True)
    same = await objects.get(key) == PROBE
    await objects.delete(key)
    took_ms = (time.perf_counter() - begun) * 1000
    if not same or await objects.exists(key):
        return bad("objects", f"{objects.place} does not keep what it is given", "is it a real S3?")
    return good("objects", f"{objects.place}: written, read and deleted in {took_ms:.0f} ms")
