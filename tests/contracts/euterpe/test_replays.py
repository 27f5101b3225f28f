"""A dead letter whose source only sealed credentials open, replayed by an operator over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callsheet.api import dead_letters
from tests import stores
from tests.media.corpus import Corpus
from tests.outbox.sink import Got, Sink, answer

from .kit import MP3, running


@pytest.mark.parametrize("store", stores.THREE)
async def test_a_dead_letter_with_a_sealed_source_runs_again_and_its_status_names_the_old_one(
    store: str, tmp_path: Path, corpus: Corpus
) -> None:
    raw, away = corpus("sound.wav").read_bytes(), True

    async def serve(sink: Sink, request: Got, writer: Any) -> None:
        await (answer("503 Service Unavailable") if away else answer("200 OK", raw))(sink, request, writer)

    async with Sink(serve) as site, running(stores.fresh_url(store), tmp_path, routers=[dead_letters.router]) as stack:
        source = f"http://127.0.0.1:{site.port}/a?token=1"
        job_id = await stack.post({"source": source, "outputs": [MP3], "max_attempts": 1})
        letter = await stack.ended(job_id)
        assert (letter["status"], letter["error"]["code"], letter["replay_of"]) == ("dead_letter", "503", None)
        away = False
        response = await stack.client.post(f"/v1/dead-letters/{job_id}/replay")
        assert response.status_code == 202, response.text
        status = await stack.ended(response.json()["replay_job_id"])
        assert (status["status"], status["replay_of"], status["credential_version"]) == ("succeeded", job_id, 0)
        assert site.got[-1].path == "/a?token=1"
        assert (await stack.status(job_id))["status"] == "dead_letter"
