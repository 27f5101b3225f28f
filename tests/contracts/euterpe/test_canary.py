"""Secrets go through the whole of the contract, and are then looked for everywhere, in every writing (E4).

They are what a requester gives (keys of an S3, session tokens, a signed URL), what it signs and asks with (the webhook
secret, the API key), and the vault's own keys.
"""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from callsheet.cli import logs
from tests import stores
from tests.contracts.euterpe.kit import KEYS, MP3, Stack, keys_of, running
from tests.media.corpus import Corpus
from tests.objects.front import Verdict, fronting
from tests.seaweed import ADMIN, BUCKET, s3_server
from tests.vault.test_canary import dump, found

ROOT = Path(__file__).parents[3]
PATIENCE_S = 90
FILE_BYTES = 1_000_000
MADE_UP = "c4nary+/made+up/" + uuid.uuid4().hex


class Watch(threading.Thread):
    """Inspects a worker's processes and files repeatedly: their arguments, environment and contents."""

    def __init__(self, pid: int, folder: Path) -> None:
        super().__init__(daemon=True)
        self.worker = psutil.Process(pid)
        self.folder = folder
        self.children: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            try:
                for child in self.worker.children(recursive=True):
                    self._look_at(child.pid)
            except psutil.Error:
                continue
            self._look_in(self.folder)

    def _look_at(self, pid: int) -> None:
        try:
            place = Path(f"/proc/{pid}")
            line, seen = (place / "cmdline").read_bytes(), (place / "environ").read_bytes()
        except OSError:
            return
        line_text = line.decode("utf-8", "replace")
        if "callsheet.cli" not in line_text:  # else it is on its way from fork to exec, and still the worker's image
            self.children[line_text] = self.children.get(line_text, b"") + seen

    def _look_in(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            try:
                if path.is_file() and path.stat().st_size < FILE_BYTES:
                    self.files[str(path)] = str(path).encode() + path.read_bytes()
            except OSError:
                continue


@contextmanager
def working(url: str, stack: Stack, folder: Path) -> Iterator[tuple[Watch, Path]]:
    """Run a worker with full logging into a file; its ffmpeg takes as long as the sound does."""
    log_file = folder / "worker.log"
    command = [sys.executable, "-m", "callsheet.cli", "worker", "tests.contracts.euterpe.crew:app"]
    options = ["--workspaces", str(stack.workspaces), "--log-level", "debug", "--log-format", "json"]
    own = folder / "tmp"
    own.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "CALLSHEET_DATABASE_URL": url,
        "CALLSHEET_OBJECTS_URL": stack.app.objects_url,
        "EUTERPE_STALL": "processing",
        "TMPDIR": str(own),
    }
    stack.workspaces.mkdir(exist_ok=True)
    with log_file.open("wb") as out:
        process = subprocess.Popen([*command, *options], env=environment, stdout=out, stderr=out)
    watch = Watch(process.pid, folder / "work")
    try:
        watch.start()
        yield watch, log_file
    finally:
        watch.over.set()
        process.terminate()
        process.wait(PATIENCE_S)
        watch.join(PATIENCE_S)
        watch._look_in(own)


@contextmanager
def listening() -> Iterator[io.StringIO]:
    """What the server's side logs, as its command does."""
    out, root = io.StringIO(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.set_up("json", "debug", out)
        yield out
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


class Flow:
    """Three jobs: one whose keys end half-way and are refreshed, one of a signed URL that fails, one of false keys."""

    def __init__(self, stack: Stack, prefix: str) -> None:
        self.stack, self.prefix = stack, prefix
        self.words = [KEYS.split()[-1], MADE_UP]
        self.texts: list[str] = []
        self.old = ""

    def judge(self, method: str, target: str, head: str) -> Verdict:
        return (400, "ExpiredToken") if self.old and method in {"PUT", "POST"} and self.old in target + head else None

    async def keys(self) -> dict[str, Any]:
        keys = await s3_server().temporary(["s3:*"], f"{self.prefix}/*")
        self.words += [keys.secret_access_key, keys.session_token]
        return {"source": keys_of(keys), "output": keys_of(keys)}

    def body(self, endpoint: str, **more: Any) -> dict[str, Any]:
        return {
            "output": f"s3://{BUCKET}/{self.prefix}/out",
            "output_storage": {"endpoint": endpoint},
            "outputs": [MP3],
            "refresh_url": self.stack.refresh_url,
            "status_webhook_url": self.stack.hook,
            **more,
        }

    async def ended(self, body: dict[str, Any]) -> dict[str, Any]:
        posted = await self.stack.client.post("/transcode", json=body)
        assert posted.status_code == 202, posted.text
        job_id = posted.json()["job_id"]
        status = await self.stack.ended(job_id, PATIENCE_S)
        events = await self.stack.live.engine.store.events({job_id: 0}, 200)
        job = await self.stack.live.engine.get(job_id)
        self.texts += [posted.text, repr(posted.headers), repr(status), repr(events), repr(job)]
        return status


@pytest.mark.parametrize("kind", ["sqlite", "postgres"] if "CALLSHEET_DEEP" in os.environ else ["sqlite"])
async def test_a_secret_is_nowhere_but_in_memory_in_the_whole_of_the_contract(
    kind: str, tmp_path: Path, corpus: Corpus
) -> None:
    url = stores.fresh_url(kind)
    prefix = f"canary-{uuid.uuid4().hex[:12]}"
    own = s3_server().objects(ADMIN, prefix=prefix)
    await own.put_file("sound.wav", corpus("sound.wav"))
    signed_url = (await own.sign_get("sound.wav", 600)).url
    with listening() as server_log:
        async with running(url, tmp_path, worker=False) as stack:
            flow = Flow(stack, prefix)
            api_key = stack.client.headers["authorization"].removeprefix("Bearer ")
            webhook_secret = await stack.endpoints.open(await stack.endpoints.own("acme"), 0)
            flow.words += [signed_url.partition("X-Amz-Signature=")[2][:64], api_key, *webhook_secret]

            async def newer(_: dict[str, Any]) -> dict[str, Any]:
                return await flow.keys()

            stack.on_refresh(newer)
            async with fronting(s3_server().endpoint, flow.judge) as front:
                with working(url, stack, tmp_path) as (watch, worker_log):
                    first = await flow.keys()
                    flow.old = first["output"]["access_key_id"]
                    source = {
                        "source": f"s3://{BUCKET}/{prefix}/sound.wav",
                        "source_storage": {"endpoint": front.url},
                    }
                    good = await flow.ended(flow.body(front.url, credentials=first, **source))
                    assert (good["status"], good["refresh_count"]) == ("succeeded", 1), good
                    again = {"output": (await flow.keys())["output"]}
                    picture = [{"key": "film.mp4", "format": "mp4"}]
                    failed = await flow.ended(
                        flow.body(front.url, source=signed_url, credentials=again, outputs=picture)
                    )
                    assert (failed["status"], failed["error"]["code"]) == ("failed", "no_such_stream")
                    during = await dump(stack.live.engine.store)
                    stack.sink.by_path.pop("/refresh")  # the answer is 200, and no newer keys come
                    false = {"access_key_id": "AKFALSE", "secret_access_key": MADE_UP}
                    body = flow.body(front.url, credentials={"source": false, "output": false}, **source)
                    del body["refresh_url"]
                    refusal = await flow.ended({**body, "max_attempts": 1})
                    assert (refusal["status"], refusal["error"]["code"]) == ("dead_letter", "credential_rejected")
                    await stack.told("succeeded", PATIENCE_S)
            after = await dump(stack.live.engine.store)
            request = [repr((request.path, request.headers, request.body)) for request in stack.sink.got]
    await own.close()
    assert any("ffmpeg" in line for line in watch.children), "no ffmpeg was seen"
    assert [line for line, seen in watch.children.items() if b"CALLSHEET" in seen] == [], "they have settings of ours"
    assert any(name.endswith("/source") for name in watch.files), "no file was seen"
    places = {
        "the store while secrets are in it": during,
        "the store": after,
        "the worker's log": worker_log.read_bytes(),
        "the server's log": server_log.getvalue().encode(),
        "answers and events": "\n".join(flow.texts).encode(),
        "callbacks": "\n".join(request).encode(),
        "command lines": "\n".join(watch.children).encode(),
        "environments": b"".join(watch.children.values()),
        "files": b"".join(watch.files.values()),
    }
    assert all(places.values()), {name: len(text) for name, text in places.items()}
    assert len(flow.words) >= 10
    slips = {n: sorted(set(found(word, places))) for n, word in enumerate(flow.words)}
    assert {n: where for n, where in slips.items() if where} == {}
