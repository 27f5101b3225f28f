"""The checker: every rule over a history. A rule is a function that gives the violations it finds.

The rules are in `rules_jobs` (what became of each job), `rules_order` (keys, schedules, dependencies) and
`rules_outside` (what callbacks and watchers saw, and what was left behind).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.storm.history import History


class Violation(NamedTuple):
    """A broken promise: the rule, and a description."""

    rule: str
    what: str


Rule = Callable[[History], Iterator[str]]
RULES: dict[str, Rule] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of a promise."""

    def enter(function: Rule) -> Rule:
        RULES[name] = function
        return function

    return enter


def check(history: History) -> list[Violation]:
    """Return all violations of all rules, in the order of the rules."""
    from tests.storm import rules_jobs, rules_order, rules_outside  # noqa: F401, PLC0415 - they enter their rules here

    return [Violation(name, what) for name, rule in RULES.items() for what in rule(history)]
