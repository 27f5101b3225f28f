"""The section `outbox` of RESULTS.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Table = Callable[[Sequence[object], Sequence[Sequence[object]]], str]
READING = """\
One deliverer{apart}, to a sink on this machine: claimed, signed, sent over a connection of its own, answered, written.
{events:,} events of four requesters for {healthy} endpoints wait at the start. "By CPU" is what a second of the
deliverer's own CPU time delivers: on a machine that is busy with other things it says more than the rate.
"""
FAIR = """\
{rate} events in a second for {healthy} endpoints that answer at once, with the contract's five slots, from the commit to
the arrival; and the same beside one endpoint that never answers and has {backlog:,} events due before them. Both take
turns of {seconds:g} s, {slices} each, on stores that have had as many writes. Target: a p99 within 20 % of what it is alone.
"""


def sections(records: dict[str, Any], titles: dict[str, str], table: Table) -> list[str]:
    """The parts under the section's title."""
    figures = {titles[kind]: record["measured"] for kind, record in records.items()}
    first = next(iter(figures.values()))
    apart = " on a core of its own" if first["apart"] else ""
    return [
        READING.strip().format(**first["plan"], apart=apart),
        table(
            ("store", "slots", "deliveries/s", "by CPU", "target", "RSS grew"),
            [
                (store, name, _spread(r["per_s"]), _spread(r["per_cpu_s"]), "1,000", f"{r['rss_growth_mb']:.1f} MiB")
                for store, m in figures.items()
                for name, r in m["rates"].items()
            ],
        ),
        FAIR.strip().format(**{"slices": 1, **first["plan"]}),
        table(
            ("store", "p50 alone", "p99 alone", "p50 beside", "p99 beside", "ratio of p99", "in each turn"),
            [
                (
                    store,
                    *(f"{m['fairness'][name]:.1f} ms" for name in ("p50_ms", "p99_ms", "p50_slow_ms", "p99_slow_ms")),
                    f"{m['fairness'].get('ratio', m['fairness']['p99_slow_ms'] / m['fairness']['p99_ms']):.2f}",
                    ", ".join(f"{ratio:.2f}" for ratio in m["fairness"]["ratios"]),
                )
                for store, m in figures.items()
            ],
        ),
    ]


def _spread(values: Sequence[float]) -> str:
    median, low, high = values
    return f"{median:,.0f} ({low:,.0f}–{high:,.0f})"
