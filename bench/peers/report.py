"""The tables of the last run, as Markdown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.measure import RESULTS
from bench.peers.catalogue import ENTRIES, OURS, STORES, TITLES

Record = dict[str, Any]
READING = """\
Every peer runs in its own pinned environment, with its durable settings and its fastest documented mode (below), on
the same machine and the same private servers. A round takes each of them once, each in an empty database; figures are
medians of the rounds (lowest–highest), and the factor is the median of Callsheet's figure by the peer's of the same
round. One worker process drains the jobs: they do nothing, so a figure is the cost of the queue itself. A drain counts
from the worker's start to the last job's completion in the store. Server counts are for the whole run, bulk enqueue
included. A Redis command that a script calls counts too; a read is one arrival of requests at a socket, so about a
round trip."""


def source(*, quick: bool) -> Path:
    """Return the figures' file; a quick run's separate file replaces no full run."""
    return RESULTS / ("peers-quick.json" if quick else "peers.json")


def load(*, quick: bool = False) -> dict[str, Record]:
    """Return the figures of the last runs by `store/name`; empty before the first run."""
    path = source(quick=quick)
    return json.loads(path.read_text("utf-8"))["measured"]["peers"] if path.exists() else {}


def sections(*, quick: bool = False) -> str:
    """All tables; an empty text when nothing was measured."""
    peers = load(quick=quick)
    if not peers:
        return ""
    parts = ["## Beside other job queues", READING, _where(quick=quick)]
    for store in STORES:
        records = [record for record in _in_order(peers) if record["store"] == store]
        if records:
            parts += [f"### {TITLES[store]}", *_tables(store, records)]
    parts += ["### How each was set up", _set_up(list(_in_order(peers)))]
    return "\n\n".join(parts)


def _where(*, quick: bool) -> str:
    """Return the date and machine of the last measurement, which may differ from those of other sections."""
    record = json.loads(source(quick=quick).read_text("utf-8"))
    machine = record["machine"]
    return f"Measured until {record['at']}: {machine['CPU']}, {machine['RAM']}, {machine['kernel']}."


def _in_order(peers: dict[str, Record]) -> Iterator[Record]:
    return (peers[entry.key] for entry in ENTRIES if entry.key in peers)


def _tables(store: str, records: list[Record]) -> Iterator[str]:
    ours = next((record for record in records if record["name"] == OURS), {})
    yield _drain(store, records, ours)
    if any("latency" in record or "steady" in record for record in records):
        yield _waits(records)
    if any("decay" in record for record in records):
        yield _decay(records)
    if any("kill" in record or "zombie" in record for record in records):
        yield _faults(records)
    if failures := list(_failures(records)):
        yield "\n".join(f"- {line}" for line in failures)


def _drain(store: str, records: list[Record], ours: Record) -> str:
    header = ["", "drained/s", "Callsheet ÷ it", "bulk enqueue/s", "one by one/s", "CPU µs/job", "RSS MB", "jobs"]
    counts = {"postgres": ["transactions"], "redis": ["commands", "reads"]}.get(store, [])
    rows = []
    for record in records:
        rounds = good(record, "drain")
        row = [
            f"**{record['name']}**" if record is ours else record["name"],
            spread([round_["drain_per_s"][0] for round_ in rounds]),
            _times(factor(ours, record)) if record is not ours else "",
            _middle([round_["bulk_per_s"] for round_ in rounds]),
            _middle([once["single_per_s"] for once in good(record, "single")]),
            _middle([round_["cpu_us_per_job"] for round_ in rounds]),
            _middle([round_["rss_mb"] for round_ in rounds]),
            f"{rounds[0]['count']:,}" if rounds else "",
        ]
        row += [_middle([round_["server_per_job"][what] for round_ in rounds], 2) for what in counts]
        rows.append(row)
    return _table([*header, *(f"{what}/job" for what in counts)], rows)


def _waits(records: list[Record]) -> str:
    header = ["ms", "idle pick-up p50", "p99", "at 300/s, 1 ms jobs: p50", "p99", "offered/s", "ran"]
    rows = []
    for record in records:
        idle, steady = good(record, "latency"), good(record, "steady")
        rows.append(
            [
                record["name"],
                *(_middle([one[which] for one in idle], 1) for which in ("p50_ms", "p99_ms")),
                *(_middle([one[which] for one in steady], 1) for which in ("p50_ms", "p99_ms")),
                _middle([one["offered_per_s"] for one in steady]),
                _share(steady),
            ]
        )
    return _table(header, rows)


def _share(steady: list[Record]) -> str:
    return f"{min(one['ran'] / one['count'] for one in steady):.0%}" if steady else ""


def _decay(records: list[Record]) -> str:
    header = [
        "",
        "drained/s, filled and drained again and again in one database",
        "then ÷ an empty one on a new server, in turns",
    ]
    rows = [
        [record["name"], " → ".join(f"{rate:,.0f}" for rate in rounds[0]["drain_per_s"]), _age_cell(rounds[0])]
        for record in records
        if (rounds := good(record, "decay"))
    ]
    return _table(header, rows)


def _age_cell(round_: Record) -> str:
    pairs = zip(round_.get("aged_per_s", []), round_.get("fresh_per_s", []), strict=True)
    ratios = [aged / fresh for aged, fresh in pairs]
    return f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else ""


def _faults(records: list[Record]) -> str:
    header = ["", "kill -9 → run again", "recovery setting", "woken after W2's end", "woken while W2 runs it"]
    rows = []
    for record in records:
        zombie = next(iter(good(record, "zombie")), {})
        rows.append(
            [
                record["name"],
                _rerun(record),
                record["recovery"],
                zombie.get("changed", ""),
                zombie.get("changed_running", ""),
            ]
        )
    note = (
        "The last two columns: does a worker that was stopped (SIGSTOP) beyond its recovery time, while W2 took its job, "
        "change anything in the store when it goes on?"
    )
    return f"{_table(header, rows)}\n\n{note}"


def _rerun(record: Record) -> str:
    rounds = good(record, "kill")
    if not rounds:
        return ""
    seconds = rounds[0]["rerun_s"]
    return f"not within {rounds[0]['patience_s']:.0f} s" if seconds is None else f"{seconds:.1f} s"


def _failures(records: list[Record]) -> Iterator[str]:
    for record in records:
        if "not_run" in record:
            yield f"{record['name']}: not run: {record['not_run']}"
        for scenario, rounds in record.items():
            if isinstance(rounds, list):
                for why in {one["not_run"] for one in rounds if "not_run" in one}:
                    yield f"{record['name']}, {scenario}: not run: {why}"


def _set_up(records: list[Record]) -> str:
    lines = []
    for record in records:
        versions = ", ".join(f"{name} {version}" for name, version in record.get("versions", {}).items())
        lines.append(f"- **{record['name']}** on {TITLES[record['store']]} ({versions or 'not run'}): {record['mode']}")
        zombie = next(iter(good(record, "zombie")), {})
        if "why" in zombie:
            lines.append(f"  - woken after W2's end: {zombie['why']}")
            lines.append(f"  - woken while W2 runs it: {zombie['why_running']}")
    return "\n".join(lines)


def good(record: Record, scenario: str) -> list[Record]:
    """The rounds of a scenario that gave figures."""
    return [one for one in record.get(scenario, []) if "not_run" not in one]


def factor(ours: Record, peer: Record) -> float | None:
    """The median of Callsheet's drain by the peer's, round by round."""
    pairs = zip(ours.get("drain", []), peer.get("drain", []), strict=False)
    factors = [
        mine["drain_per_s"][0] / theirs["drain_per_s"][0]
        for mine, theirs in pairs
        if "not_run" not in mine and "not_run" not in theirs
    ]
    return statistics.median(factors) if factors else None


def spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    middle = f"{statistics.median(values):,.0f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.0f}–{max(values):,.0f})"


def _middle(values: Sequence[float], digits: int = 0) -> str:
    return f"{statistics.median(values):,.{digits}f}" if values else ""


def _times(value: float | None) -> str:
    return "" if value is None else f"**{value:.2f}**"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    print(sections())
