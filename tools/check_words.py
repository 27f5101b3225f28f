"""Hold the program to plain words: `python -m tools.check_words` fails when a budget of BUDGETS is exceeded.

Three numbers of a folder are measured: how many names are one lone participle (`found`, `told`), how many sentences of
docstrings name almost nothing, and how many docstrings have fewer than three words. The figures are crude; budgets only
prevent a relapse. Lower a budget when you have made the words plainer, and never raise one.
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
SENTENCE_WORDS = 4  # a shorter part of a docstring is no sentence
EMPTY_SHARE = 0.6  # a sentence of which so much are words without a meaning of their own names almost nothing
ED_LETTERS = 4  # longer names that end in "ed" are participles, but for those in "eed"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARTICIPLES = _words(
    """
    been begun bent bought bound broken brought built burnt caught chosen come cut dealt done drawn driven drunk
    eaten fallen felt fought found given gone got gotten grown had heard held hidden hit hurt kept known laid led
    left lent let lost made meant met mistaken paid put quit risen run said sent set shown shut slept sold sought
    spent spoken stolen stood sworn taken taught thought thrown told understood won worn wound written
    """
)
NOUNS_AND_VERBS = _words(
    "bed come cut feed held hit id index led left let need put quit read red run seed set shed shut speed"
)
EMPTY_WORDS = _words(
    """
    a about above after again against all also am an and any are as at be because been before being below between
    both but by can could did do does doing done down during each few for from further go goes had has have having
    he her here hers him his how i if in into is it it's its itself just like made make many may me more most must
    my no nor not nothing now of off on once one ones only or other others our out over own said same say says she
    should so some such tell tells than that that's the their them then there these they thing things this those
    through to told too two under until up upon us very was way we were what whatever when where whether which while
    who whom whose why will with within without would yet you your
    """
)


class Measure(NamedTuple):
    """Counts of one folder's names and sentences."""

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
    """One folder's limits: percent of names, percent of sentences, number of docstrings."""

    participle_percent: float
    vague_percent: float
    short: int


BUDGETS = {
    "src/callsheet": Budget(1.0, 5.5, 0),
    "tools": Budget(1.0, 5.0, 0),
    "bench": Budget(1.0, 5.0, 0),
    "tests": Budget(2.5, 5.0, 0),
}


def is_participle(name: str) -> bool:
    """Return whether a name is one word that is a participle and no common noun or verb."""
    word = name.strip("_").lower()
    if not word.isalpha() or word in NOUNS_AND_VERBS:
        return False
    return word in PARTICIPLES or (len(word) > ED_LETTERS and word.endswith("ed") and not word.endswith("eed"))


def is_vague(sentence: str) -> bool:
    """Return whether at least 60 % of a sentence's words are stopwords."""
    words = words_of(sentence)
    return len(words) >= SENTENCE_WORDS and sum(word in EMPTY_WORDS for word in words) >= EMPTY_SHARE * len(words)


def words_of(sentence: str) -> list[str]:
    """Return the words in lower case; a piece of code in backticks is one word."""
    return re.findall(r"[a-z']+", re.sub(r"`[^`]*`", " code ", sentence).lower())


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
    """Yield the docstrings of a module, its classes and functions, each on one line."""
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
    parts = [part for text in texts for part in re.split(r"(?<=[.!?:;]) ", text)]
    sentences = [part for part in parts if len(words_of(part)) >= SENTENCE_WORDS]
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
        figures = measure(ROOT / folder)
        values = (figures.participle_percent, figures.vague_percent, figures.short)
        over |= any(value > most for value, most in zip(values, budget, strict=True))
        print(  # noqa: T201 - it is a command
            f"{folder}: participles {values[0]:.2f} % (at most {budget[0]}), vague sentences {values[1]:.2f} % "
            f"(at most {budget[1]}), short docstrings {values[2]} (at most {budget[2]})"
        )
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
