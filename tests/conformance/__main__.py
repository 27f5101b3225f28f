"""`make conformance`: the suite as a table, guarantee by store."""

from __future__ import annotations

import re
import sys
from collections import defaultdict

import pytest

from callsheet.store.protocol import Store
from tests import stores

PARAMETER = re.compile(r"\[([a-z]+)")


def guarantees() -> dict[str, str]:
    """The numbered guarantees and their words, read from the protocol's docstrings."""
    by_name: dict[str, str] = {}
    for name in dir(Store):
        text = " ".join((getattr(Store, name).__doc__ or "").split())
        by_name |= dict(re.findall(r"(S\d+): (.*?[^ ])(?= S\d+:|$)", text))
    return dict(sorted(by_name.items(), key=lambda item: int(item[0][1:])))


class Table:
    """Collects outcomes by guarantee and store while pytest runs."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, str], list[bool]] = defaultdict(list)
        self._marks: dict[str, tuple[str, ...]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self._marks[item.nodeid] = tuple(g for mark in item.iter_markers("guarantee") for g in mark.args)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        store = PARAMETER.search(report.nodeid)
        for guarantee in self._marks.get(report.nodeid, ()):
            if store is not None:
                self.outcomes[guarantee, store[1]].append(report.passed)

    def lines(self) -> list[str]:
        """The table, one row a guarantee."""
        rows = [f"{'':4} {'guarantee':64} " + " ".join(f"{kind:>9}" for kind in stores.ALL)]
        for name, words in guarantees().items():
            cells = [self._cell(name, kind) for kind in stores.ALL]
            rows.append(f"{name:4} {words[:64]:64} " + " ".join(f"{cell:>9}" for cell in cells))
        return rows

    def complete(self) -> bool:
        """True when every guarantee was proved on every store."""
        pairs = [(name, kind) for name in guarantees() for kind in stores.ALL]
        return all(self.outcomes.get(pair) and all(self.outcomes[pair]) for pair in pairs)

    def _cell(self, guarantee: str, kind: str) -> str:
        outcomes = self.outcomes.get((guarantee, kind), [])
        if not outcomes:
            return "no test"
        return f"{len(outcomes)} ok" if all(outcomes) else f"{outcomes.count(False)} RED"


def main() -> int:
    table = Table()
    code = pytest.main(["tests/conformance", "-q", "--no-header", "-p", "no:xdist", *sys.argv[1:]], plugins=[table])
    print("\n".join(table.lines()))
    print(
        "every guarantee holds on every store" if table.complete() else "NOT every guarantee was proved on every store"
    )
    return int(code) or int(not table.complete())


if __name__ == "__main__":
    sys.exit(main())
