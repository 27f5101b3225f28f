"""Every (state × command) pair of every contract. Humans derived the tables from the documents, not from the code.

A state is a kernel status, `claimed` (running, execution not begun) or a stage of a running job.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from callsheet.kernel import commands
from callsheet.kernel.apply import after_settlement, timeline_faults
from callsheet.kernel.contracts import CONTRACTS
from callsheet.kernel.errors import IllegalMove
from callsheet.kernel.job import Job, NewEvent, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from tests.kernel.jobs import NOW, in_state

Q, R, S, F, D, C = Status.QUEUED, Status.RUNNING, Status.SUCCEEDED, Status.FAILED, Status.DEAD_LETTER, Status.CANCELED

COMMANDS: dict[str, Callable[[Job], Settlement]] = {
    "start": commands.start,
    "advance:fetching": lambda j: commands.advance(j, "fetching"),
    "advance:processing": lambda j: commands.advance(j, "processing"),
    "advance:uploading": lambda j: commands.advance(j, "uploading"),
    "advance:Voice": lambda j: commands.advance(j, "Voice"),
    "progress": lambda j: commands.progress(j, 50),
    "checkpoint": lambda j: commands.checkpoint(j, "step", "1"),
    "note": lambda j: commands.note(j, NewEvent("log")),
    "refresh": commands.refresh,
    "succeed": commands.succeed,
    "fail:transient": lambda j: commands.fail(j, JobError("500"), rand=0.5),
    "fail:fatal": lambda j: commands.fail(j, JobError("x", retryable=False), rand=0.5),
    "fail:spent": lambda j: commands.fail(j._replace(max_attempts=1), JobError("500"), rand=0.5),
    "retry": lambda j: commands.retry(j, JobError("500"), delay_ms=5),
    "dead_letter": lambda j: commands.dead_letter(j, JobError("unknown_task")),
    "release": commands.release,
    "wait": lambda j: commands.wait(j, JobError("outage"), waits_for="storage", rand=0.5),
    "lose_lease": lambda j: commands.lose_lease(j, rand=0.5),
    "lose_lease:third": lambda j: commands.lose_lease(j._replace(lease_losses=2, max_attempts=3), rand=0.5),
    "lose_lease:early": lambda j: commands.lose_lease(j, rand=0.5, has_begun=False),
    "cancel": commands.cancel,
    "request_cancel": commands.request_cancel,
    "requeue": commands.requeue,
    "requeue:spent": lambda j: commands.requeue(j._replace(max_attempts=1)),
}
STATES = (
    "queued",
    "claimed",
    "running",
    "fetching",
    "processing",
    "uploading",
    "succeeded",
    "failed",
    "dead_letter",
    "canceled",
)

FREE_STAGES = dict.fromkeys(["advance:fetching", "advance:processing", "advance:uploading", "advance:Voice"], R)
AT_WORK = {
    "progress": R,
    "checkpoint": R,
    "note": R,
    "refresh": R,
    "succeed": S,
    "fail:transient": Q,
    "fail:fatal": F,
    "fail:spent": D,
    "retry": Q,
    "dead_letter": D,
    "release": Q,
    "wait": Q,
    "lose_lease": Q,
    "lose_lease:third": D,
    "lose_lease:early": Q,
    "cancel": C,
    "request_cancel": R,
}
LOST = {"lose_lease": Q, "lose_lease:third": D, "lose_lease:early": Q}
CLAIMED = {"start": R, "release": Q, **LOST, "cancel": C, "request_cancel": R}
BACK = {"requeue": Q, "requeue:spent": Q}

# What is legal, and the status that it leads to. What is not here must be refused.
ANY_STAGE = {
    "queued": {"cancel": C, "request_cancel": C},
    "claimed": CLAIMED,
    **dict.fromkeys(("running", "fetching", "processing", "uploading"), AT_WORK | FREE_STAGES),
}


def without(table: dict[str, Status], *names: str) -> dict[str, Status]:
    return {name: status for name, status in table.items() if name not in names}


EUTERPE_AT_WORK = without(AT_WORK, "succeed", "cancel", "request_cancel")
LEGAL: dict[str, dict[str, dict[str, Status]]] = {
    "callsheet": ANY_STAGE | {"failed": BACK, "dead_letter": BACK, "canceled": BACK},
    "control_plane": ANY_STAGE | {"failed": BACK, "dead_letter": BACK},
    "redis_gateway": ANY_STAGE,
    "aura": ANY_STAGE,
    "cortana": ANY_STAGE | {"queued": {}, "failed": BACK, "dead_letter": BACK, "canceled": BACK},
    "euterpe": {
        "claimed": without(CLAIMED, "cancel", "request_cancel"),
        "running": EUTERPE_AT_WORK | {"advance:fetching": R},
        "fetching": EUTERPE_AT_WORK | {"advance:fetching": R, "advance:processing": R},
        "processing": EUTERPE_AT_WORK | {"advance:processing": R, "advance:uploading": R},
        "uploading": EUTERPE_AT_WORK | {"advance:uploading": R, "succeed": S},
        "failed": {"requeue": Q},
    },
}


@pytest.mark.parametrize("contract", sorted(CONTRACTS))
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_is_legal_or_refused(contract: str, state: str, command: str) -> None:
    job = in_state(state, contract)
    expected = LEGAL[contract].get(state, {}).get(command)
    if expected is None:
        with pytest.raises(IllegalMove):
            COMMANDS[command](job)
        return
    settlement = COMMANDS[command](job)
    assert settlement.status is expected
    assert (settlement.job_id, settlement.claim_version, settlement.from_status) == (
        job.job_id,
        job.claim_version,
        job.status,
    )
    after = after_settlement(job, settlement, NOW + 5)
    assert timeline_faults(after) == []
    assert after.progress >= job.progress
    assert after.event_ms >= job.event_ms
    assert after.event_seq - job.event_seq == (settlement.event is not None)


WORDS: dict[str, dict[str, str | None]] = {
    "euterpe": {
        "queued": "queued", "claimed": "claimed", "running": "claimed", "fetching": "fetching",
        "processing": "processing", "uploading": "uploading", "succeeded": "succeeded", "failed": "failed",
        "dead_letter": "dead_letter", "canceled": None,
    },
    "redis_gateway": {
        "queued": "queued", "claimed": "running", "running": "running", "succeeded": "done", "failed": "error",
        "dead_letter": "error", "canceled": "canceled",
    },
    "cortana": {
        "queued": "queued", "claimed": "processing", "running": "processing", "succeeded": "done",
        "failed": "failed", "dead_letter": "failed", "canceled": "failed",
    },
    "control_plane": {
        "queued": "QUEUED", "claimed": "RUNNING", "running": "RUNNING", "succeeded": "SUCCEEDED",
        "failed": "FAILED", "dead_letter": "DLQ", "canceled": "CANCELED",
    },
    "aura": {
        "queued": "Queued", "claimed": "Queued", "running": "Running", "succeeded": "Done", "failed": "Failed",
        "dead_letter": "Failed", "canceled": "Canceled",
    },
}  # fmt: skip


@pytest.mark.parametrize(("contract", "state"), [(c, s) for c, words in WORDS.items() for s in words])
def test_a_contract_has_its_own_word_for_each_state(contract: str, state: str) -> None:
    assert CONTRACTS[contract].word_of(in_state(state, contract)) == WORDS[contract][state]


def test_an_aura_job_that_retries_stays_running_to_its_readers() -> None:
    job = in_state("running", "aura")
    waiting = after_settlement(job, commands.retry(job, JobError("x"), delay_ms=5), NOW)
    assert waiting.status is Status.QUEUED
    assert CONTRACTS["aura"].word_of(waiting) == "Running"


def test_euterpe_has_exactly_the_moves_of_its_document() -> None:
    stages = ("claimed", "fetching", "processing", "uploading")
    straight = {("queued", "claimed"), ("claimed", "fetching"), ("fetching", "processing")}
    straight |= {
        ("processing", "uploading"),
        ("uploading", "succeeded"),
        ("failed", "queued"),
        ("failed", "dead_letter"),
    }
    assert CONTRACTS["euterpe"].moves == straight | {(s, to) for s in stages for to in ("queued", "failed")}
