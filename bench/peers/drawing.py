# mypy: ignore-errors
# ruff: noqa: ANN001
"""Draws peers.png from the JSON on standard input; runs in the environment `plot`."""

import json
import sys

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

OURS, PEER, INK = "#d9480f", "#b4bac1", "#343a40"


def main() -> None:
    panels = json.load(sys.stdin)
    plt.rcParams.update({"font.size": 11, "axes.edgecolor": PEER, "text.color": INK, "axes.labelcolor": INK})
    deepest = max(len(panel["bars"]) for panel in panels)
    figure, axes = plt.subplots(2, 3, figsize=(14, 2.8 + 0.62 * deepest), dpi=100)
    for column, panel in enumerate(panels):
        _bars(axes[0][column], panel, deepest)
        _waits(axes[1][column], panel, deepest)
    figure.suptitle(
        "Jobs that do nothing, one worker process: Callsheet beside other job queues",
        fontsize=17,
        weight="bold",
        y=0.985,
    )
    figure.subplots_adjust(left=0.085, right=0.985, top=0.87, bottom=0.05, wspace=0.42, hspace=0.24)
    _heading(figure, axes[0][0], "Drained in a second — longer is better")
    _heading(
        figure,
        axes[1][0],
        "Idle worker picks a job up, milliseconds: dot p50, end of the line p99 (log scale) — further left is better",
    )
    figure.savefig(sys.argv[1])


def _heading(figure, axes, text) -> None:
    figure.text(0.012, axes.get_position().y1 + 0.047, text, fontsize=13, style="italic")


def _bars(axes, panel, depth) -> None:
    bars = panel["bars"]
    axes.set_title(panel["title"], fontsize=14, weight="bold", loc="left")
    if not _rows(axes, bars, depth):
        return
    top = max(bar["value"] for bar in bars)
    for y, bar in enumerate(bars):
        axes.barh(y, bar["value"], color=OURS if bar["ours"] else PEER, height=0.68)
        axes.text(bar["value"] + top * 0.015, y, f"{bar['value']:,.0f}", va="center", weight=_weight(bar))
    axes.set_xlim(0, top * 1.2)
    axes.xaxis.set_visible(False)


def _waits(axes, panel, depth) -> None:
    waits = panel["waits"]
    axes.set_title(panel["title"], fontsize=14, weight="bold", loc="left")
    if not _rows(axes, waits, depth):
        return
    axes.set_xscale("log")
    for y, wait in enumerate(waits):
        colour = OURS if wait["ours"] else "#868e96"
        axes.plot([wait["p50"], wait["p99"]], [y, y], color=colour, linewidth=2.5, solid_capstyle="butt")
        axes.plot(wait["p50"], y, "o", color=colour, markersize=8)
        axes.plot(wait["p99"], y, "|", color=colour, markersize=11, markeredgewidth=2.5)
        text = f"{_short(wait['p50'])} – {_short(wait['p99'])}"
        axes.annotate(
            text, (wait["p99"], y), xytext=(8, 0), textcoords="offset points", va="center", weight=_weight(wait)
        )
    low, high = min(wait["p50"] for wait in waits), max(wait["p99"] for wait in waits)
    axes.set_xlim(low / 1.6, high * (high / low) ** 0.45 * 1.6)
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if low / 1.6 <= tick <= high * 1.1]
    axes.set_xticks(ticks, [_short(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())


def _rows(axes, rows, depth) -> bool:
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_weight(_weight(row))
        label.set_color(OURS if row["ours"] else INK)
    axes.set_ylim(depth - 0.4, -0.6)
    if not rows:
        axes.xaxis.set_visible(False)
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
    return bool(rows)


def _weight(row) -> str:
    return "bold" if row["ours"] else "normal"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 10 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
