"""Three workers against the test-kit: the programs in `examples/`, which import nothing of Callsheet, and ours."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from callsheet.cli.testkit import run_checks
from callsheet.cli.testkit.harness import staged
from callsheet.cli.testkit.report import Found, Verdict
from callsheet.cli.testkit.worker_checks import CHECKS
from tools.check_types import node

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
WORKERS = {
    "python": [sys.executable, str(EXAMPLES / "http_worker.py")],
    "node": [str(node()[0]), str(EXAMPLES / "http_worker.mjs")],
    "callsheet": [sys.executable, "-m", "callsheet.cli", "worker", "tests.remote.kit_app:app", "--log-level", "error"],
}
DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
SILENT = """
import json, os, time, urllib.request
def ask(verb, **body):
    request = urllib.request.Request(f"{os.environ['CALLSHEET_URL']}/internal/worker/{verb}",
        json.dumps({"worker_id": "silent", **body}).encode(),
        {"Authorization": f"Bearer {os.environ['CALLSHEET_TOKEN']}", "Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))
while True:
    got = ask("claim", streams=[os.environ["CALLSHEET_STREAMS"]], max_wait_ms=5000)
    if got["claimed"]:
        names = {name: got[name] for name in ("job_id", "attempt_id", "lease_token", "stream", "message_id")}
        time.sleep(got["payload"].get("seconds", 0))
        ask("complete", **names, result=got["payload"])
"""


async def checked(command: Sequence[str], only: str = "") -> list[Found]:
    async with staged(command) as stage:
        return await run_checks(CHECKS, stage, {"only": only, "slow": DEEP}, stage.begin)


def broken(found: Sequence[Found]) -> dict[str, str]:
    return {one.claim: one.told for one in found if one.verdict is Verdict.BROKEN}


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")


async def test_three_workers_keep_the_protocol_under_faults() -> None:
    """These run concurrently: they mostly wait."""
    results = await asyncio.gather(*(checked(command) for command in WORKERS.values()))
    assert {name: broken(one) for name, one in zip(WORKERS, results, strict=True)} == {name: {} for name in WORKERS}
    held = [sum(one.verdict is Verdict.HELD for one in each) for each in results]
    assert held == [len(CHECKS) - (0 if DEEP else 1)] * len(WORKERS)


async def test_a_worker_without_heartbeats_or_failures_is_found_out() -> None:
    silent = [sys.executable, "-c", SILENT]
    kept, second_report, final = await asyncio.gather(
        checked(silent, "for as long as the work takes"), checked(silent, "tried again"), checked(silent, "401")
    )
    assert len(broken(kept)) == 1
    assert len(broken(second_report)) == 2  # it has no failures at all
    assert not broken(final)  # it falls over, which is an end too
