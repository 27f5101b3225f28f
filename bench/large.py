"""The memory of a worker that transcodes a source of 2 GB: fetched from S3, encoded, uploaded."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.measure import keep, say
from callsheet.engine import Engine
from callsheet.engine.ids import new_id
from callsheet.kernel.job import NewJob, Status
from callsheet.objects import Objects
from callsheet.vault import Secret, Vault
from callsheet.vault.keys import first_keys
from callsheet.vault.local import LocalKeyring

ROOT = Path(__file__).parents[1]
MEBIBYTE = 2**20
SIZE_MB, QUICK_MB, SMALL_MB = 2_048, 256, 1
RATE_HZ, FRAME_BYTES = 48_000, 4
MOST_S = 1_200


async def measure(kind: str, *, quick: bool) -> None:
    """Measure and keep the figures; `kind` is always s3. Uncompressed sound encodes fastest and moves most bytes."""
    from tests.seaweed import ADMIN, s3_server  # noqa: PLC0415 - starts a server

    folder = Path(tempfile.mkdtemp(prefix="callsheet-bench-"))
    size_mb = QUICK_MB if quick else SIZE_MB
    prefix = f"bench-{new_id()}"
    storage = s3_server().objects(ADMIN, prefix=prefix)
    try:
        async with _working(folder) as (engine, vault, worker):
            small = await _through(engine, vault, worker, storage, prefix, await _sound(folder, SMALL_MB))
            say(f"large: {SMALL_MB} MB, {small['took_s']:.1f} s, peak {small['peak_mb']:.1f} MiB")
            large = await _through(engine, vault, worker, storage, prefix, await _sound(folder, size_mb))
            say(f"large: {size_mb} MB, {large['took_s']:.1f} s, peak {large['peak_mb']:.1f} MiB")
        figures = {"size_mb": size_mb, "small_mb": SMALL_MB, "small": small, "large": large}
        figures["grew_mb"] = large["peak_mb"] - small["peak_mb"]
        keep(f"large-{kind}", {**figures, "servers": {}}, quick=quick)
    finally:
        await storage.delete(*[info.key async for info in storage.list()])
        await storage.close()
        await asyncio.to_thread(shutil.rmtree, folder)


async def _sound(folder: Path, size_mb: int) -> Path:
    """Write a sparse WAV file of `size` bytes, whose holes cost no disk reads."""
    path, size = folder / f"source-{size_mb}.wav", size_mb * MEBIBYTE
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 2, RATE_HZ, RATE_HZ * FRAME_BYTES, FRAME_BYTES, 16)
    body = struct.pack("<4sI4s", b"RIFF", size + 36, b"WAVE") + head + struct.pack("<4sI", b"data", size)
    with path.open("wb") as file:
        file.write(body)
        file.truncate(len(body) + size)
    return path


@asynccontextmanager
async def _working(folder: Path) -> AsyncIterator[tuple[Engine, Vault, subprocess.Popen[bytes]]]:
    keys, url = first_keys(), f"sqlite:///{folder / 'jobs.db'}"
    engine = Engine.from_url(url)
    await engine.store.migrate()
    command = [sys.executable, "-m", "callsheet.cli", "worker", "tests.contracts.euterpe.crew:app"]
    command += ["--workspaces", str(folder / "work"), "--log-level", "error", "--poll", "100ms"]
    environ = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "CALLSHEET_DATABASE_URL": url,
        "CALLSHEET_KEYS": keys.text(),
    }
    (folder / "work").mkdir()
    async with engine, Vault(engine.store, LocalKeyring(keys)) as vault:
        worker = await asyncio.to_thread(subprocess.Popen, command, env=environ)
        try:
            yield engine, vault, worker
        finally:
            worker.terminate()
            await asyncio.to_thread(worker.wait)


async def _through(  # noqa: PLR0913, PLR0917 - one job and all that it needs
    engine: Engine, vault: Vault, worker: subprocess.Popen[bytes], storage: Objects, prefix: str, path: Path
) -> dict[str, float]:
    """Run one job from source to output; return its time and the worker's peak memory so far."""
    from tests.seaweed import ADMIN, BUCKET, s3_server  # noqa: PLC0415

    await storage.put_file(path.name, path)
    keys = {"access_key_id": ADMIN.access_key_id, "secret_access_key": ADMIN.secret_access_key, "session_token": ""}
    job_id, where = new_id(), {"endpoint": s3_server().endpoint}
    envelope = await vault.seal(Secret(json.dumps({"source": keys, "output": keys})), job_id, "bench")
    payload = {
        "source": f"s3://{BUCKET}/{prefix}/{path.name}",
        "output": f"s3://{BUCKET}/{prefix}/out",
        "outputs": [{"key": path.name, "format": "wav"}],
        "source_storage": where,
        "output_storage": where,
    }
    new = NewJob(
        job_id,
        "transcode",
        json.dumps(payload),
        "transcode",
        requester_id="bench",
        contract="euterpe",
        credentials=envelope,
    )
    start = time.perf_counter()
    await engine.enqueue([new])
    async with asyncio.timeout(MOST_S):
        async for _ in engine.watch(job_id):
            pass
    job = await engine.get(job_id)
    if job.status is not Status.SUCCEEDED:
        raise RuntimeError(f"the job ended as {job.status}: {job.error}")
    output_bytes = json.loads(job.result or "{}")["outputs"][0]["bytes"]
    took_s = time.perf_counter() - start
    return {"took_s": took_s, "peak_mb": _peak_mb(worker.pid), "output_mb": output_bytes / MEBIBYTE}


def _peak_mb(pid: int) -> float:
    """Return the peak memory of a process since its start, without its children."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("ascii"))
    assert match is not None
    return int(match[1]) / 1024


def sections(record: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    """Return the paragraphs and tables for RESULTS.md."""
    figures = record["measured"]
    text = (
        "A transcoding job whose source and outputs are in an S3 (SeaweedFS on this machine), sound without compression in "
        "and out, so that all bytes go through the worker twice: fetched with a digest to the disk, made by ffmpeg, sent in "
        "parts. The peak is the worker's own (VmHWM), ffmpeg not in it. Target: at most 64 MB more than for a small source."
    )
    rows = [
        (
            f"{figures[f'{name}_mb' if name == 'small' else 'size_mb']:,} MB",
            f"{run['took_s']:.1f} s",
            f"{run['peak_mb']:.1f} MiB",
        )
        for name, run in (("small", figures["small"]), ("large", figures["large"]))
    ]
    return [text, table(("source", "from enqueue to end", "peak"), rows), f"It grew by {figures['grew_mb']:.1f} MiB."]
