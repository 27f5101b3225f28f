"""Large objects pass through little memory, whatever their size."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import sys
from pathlib import Path

import pytest

from callsheet.objects import Objects, objects_from_url
from tests.seaweed import ADMIN, BUCKET, REGION, s3_server

MEBIBYTE = 1024 * 1024
DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
ALLOWED_MEBIBYTES = {"folder": 30, "s3": 110}  # an S3 has four parts of 8 MiB on their way, and copies of them


@pytest.mark.parametrize(("kind", "size_mebibytes"), [("folder", 300 if DEEP else 150), ("s3", 300 if DEEP else 100)])
async def test_memory_stays_flat(kind: str, size_mebibytes: int, tmp_path: Path) -> None:
    server = {
        "S3_ENDPOINT": s3_server().endpoint,
        "S3_REGION": REGION,
        "S3_ACCESS_KEY_ID": ADMIN.access_key_id,
        "S3_SECRET_ACCESS_KEY": ADMIN.secret_access_key,
    }
    url = f"file://{tmp_path / 'objects'}" if kind == "folder" else f"s3://{BUCKET}/flat"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.objects.test_memory", url, str(size_mebibytes), str(tmp_path)),
        env={**os.environ, **(server if kind == "s3" else {})},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    before, after = map(int, output.split())
    assert after - before < ALLOWED_MEBIBYTES[kind], f"{before} MiB before, {after} MiB after {size_mebibytes} MiB"


async def there_and_back(objects: Objects, size: int, folder: Path) -> None:
    source, target = folder / "in", folder / "out"
    block, digest = hashlib.shake_128(b"block").digest(MEBIBYTE), hashlib.sha256()
    with source.open("wb") as file:
        for _ in range(size):
            file.write(block)
            digest.update(block)
    put = await objects.put_file("large", source)
    info = await objects.get_file("large", target)
    assert put.sha256 == info.sha256 == digest.hexdigest()
    target.unlink()


async def main(url: str, size: int, folder: Path) -> None:
    """Measure in a separate process: start with a small object, so that lazy imports do not count."""
    async with objects_from_url(url) as objects:
        await there_and_back(objects, 9, folder)
        before = _most()
        await there_and_back(objects, size, folder)
        sys.stdout.write(f"{before} {_most()}")
        await objects.delete("large")


def _most() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
