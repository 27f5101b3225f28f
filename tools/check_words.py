"""Hold the program to plain words: `python -m tools.check_words` fails when a budget of BUDGETS is exceeded.

Three numbers of a folder are measured: how many names are one lone participle (`found`, `told`), how many sentences of
docstrings name almost nothing, and how many docstrings have fewer than three words. They are crude; they only keep what
was won. Lower a budget when you have made the words plainer, and never raise one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SHORT_WORDS = 3  # a docstring of fewer says nothing
EMPTY_SHARE = 0.6  # a sentence of which so much are words without a meaning of their own names almost nothing
ED_LETTERS = 4  # longer names that end in "ed" are participles, but for those in "eed"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARTICIPLES = _words(
    """
    asked been begun bent bought bound broken brought built caught chosen cut dealt done drawn driven eaten
    fallen felt found given gone got gotten grown had heard held hidden hit kept known laid left lent let lost
    made meant met paid put quit risen run said sent set shown shut sold sought spent spoken stolen stood sworn
    taken taught thought thrown told understood won worn written
    """
)
NOUNS_AND_VERBS = _words("run cut put set let hit quit shut need feed seed speed shed left held read")
EMPTY_WORDS = _words(
    """
    a about after again all also am an and any are as at be because been before below between both but by can
    could did do does done each few for from further had has have he her him his how i if in into is it its
    itself just like made make many may me more most must my no nor not nothing now of off on once one ones only
    or other others our out over own said same say says she should so some such tell tells than that the their
    them then there these they thing things this those through to told too two under until up us very was we
    were what whatever when where whether which while who whom whose why will with within without would yet you
    your
    """
)


class Measure(NamedTuple):
    """What was counted in a folder."""

    names: int
    participles: int
    sentences: int
    vague: int
    short: int

    @property
    def participle_percent(self) -> float:
        """The share of names that are one lone participle."""
        return 100 * self.participles / max(1, self.names)

    @property
    def vague_percent(self) -> float:
        """The share of docstring sentences that name almost nothing."""
        return 100 * self.vague / max(1, self.sentences)


class Budget(NamedTuple):
    """The most that a folder may have: percent, percent, docstrings."""

    participle_percent: float
    vague_percent: float
    short: int


BUDGETS = {
    "src/callsheet": Budget(6.4, 7.5, 0),
    "tools": Budget(9.8, 29.0, 0),
    "bench": Budget(7.9, 30.5, 11),
}


def is_participle(name: str) -> bool:
    """Return whether a name is one word that is a participle and no common noun or verb."""
    word = name.strip("_").lower()
    if not word.isalpha() or word in NOUNS_AND_VERBS:
        return False
    return word in PARTICIPLES or (len(word) > ED_LETTERS and word.endswith("ed") and not word.endswith("eed"))


def is_vague(sentence: str) -> bool:
    """Return whether most words of a sentence have no meaning of their own."""
    words = re.findall(r"[A-Za-z']+", sentence.lower())
    return len(words) >= SHORT_WORDS and sum(word in EMPTY_WORDS for word in words) >= EMPTY_SHARE * len(words)


def names_of(tree: ast.AST) -> Iterator[str]:
    """Yield every name that a module binds: variables, attributes, parameters, functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def docstrings_of(tree: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a module, of its classes and functions, each on one line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield " ".join(text.split())


def measure(folder: Path) -> Measure:
    """Count the names and docstrings of all modules below a folder."""
    trees = [ast.parse(path.read_text("utf-8")) for path in sorted(folder.rglob("*.py"))]
    names = [name for tree in trees for name in names_of(tree)]
    texts = [text for tree in trees for text in docstrings_of(tree)]
    sentences = [part for text in texts for part in re.split(r"(?<=[.!?:;]) ", text)]
    return Measure(
        len(names),
        sum(map(is_participle, names)),
        len(sentences),
        sum(map(is_vague, sentences)),
        sum(len(text.split()) < SHORT_WORDS for text in texts),
    )


def main() -> int:
    """Print the measures of all folders; return 1 if one exceeds its budget."""
    over = False
    for folder, budget in BUDGETS.items():
        counted = measure(ROOT / folder)
        values = (counted.participle_percent, counted.vague_percent, counted.short)
        over |= any(value > most for value, most in zip(values, budget, strict=True))
        print(  # noqa: T201 - it is a command
            f"{folder}: participles {values[0]:.2f} % (at most {budget[0]}), vague sentences {values[1]:.2f} % "
            f"(at most {budget[1]}), short docstrings {values[2]} (at most {budget[2]})"
        )
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
