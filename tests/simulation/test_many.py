from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.loop import SimLoop
from tests.simulation.many import Tally, run_seeds
from tests.simulation.run import Outcome, simulate

SEEDS = range(1, 8)


def a_seed_of_a_bad_world(seed: int) -> Outcome:
    """Every third one breaks a promise; it stands at module level so that child processes can import it."""
    wrong = ("at 1.000 s: a job is lost",) if seed % 3 == 0 else ()
    return Outcome(seed, f"history {seed}", wrong, 10, 5, 3_600.0, 2, {"crash": 1, "refused": seed})


def a_world_that_cannot_be_run(seed: int) -> Outcome:
    raise ArithmeticError(f"of seed {seed}")


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_outcomes_come_in_the_order_of_their_seeds(processes: int) -> None:
    outcomes = list(run_seeds(SEEDS, processes, a_seed_of_a_bad_world))
    assert outcomes == [(seed, a_seed_of_a_bad_world(seed)) for seed in SEEDS]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_seed_that_cannot_be_run_is_no_success(processes: int) -> None:
    with pytest.raises(ArithmeticError, match=r"of seed 1$"):
        list(run_seeds(SEEDS, processes, a_world_that_cannot_be_run))


def test_a_tally_has_the_broken_seeds_and_the_faults_of_a_seed() -> None:
    tally = Tally()
    for _, outcome in run_seeds(SEEDS, 1, a_seed_of_a_bad_world):
        tally.add(outcome)
    head, means, kinds = tally.lines()
    assert tally.broken == [3, 6]
    assert head.startswith("7 seeds, 7.0 virtual hours")
    assert means == "a seed has 2.0 jobs, 10 steps, 5 choices and 5.0 faults"
    assert kinds == "faults of each kind in a seed: crash 1.00, refused 4.00"


def test_a_report_is_the_same_in_one_process_and_in_several() -> None:
    one, two = (_report("--seeds", "4", "--first", "17", "--processes", processes) for processes in "12")
    assert one.stdout == two.stdout
    assert (one.returncode, two.returncode) == (0, 0)
    assert "broken seeds: none; histories that differed: none" in one.stdout


def test_a_history_does_not_depend_on_what_ran_before_it() -> None:
    alone = dict(run_seeds((20, 26), 2))  # each in a process of its own
    in_a_row = [simulate(seed) for seed in (26, 7, 20)]
    assert (in_a_row[0], in_a_row[2]) == (alone[26], alone[20])


def test_debugging_of_asyncio_is_off_in_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    loop = SimLoop(1, shuffles=True)
    assert not loop.get_debug()
    loop.close()


def _report(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
