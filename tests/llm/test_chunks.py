"""Passages end where sentences end, keep their places, and lose nothing."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from callsheet.llm.rag import CHUNK_CHARS, chunks_of

SENTENCE = "The quick brown fox jumps over the lazy dog, number {n}. "
LONG = "".join(SENTENCE.format(n=n) for n in range(200))


def test_a_short_text_is_one_passage() -> None:
    assert [tuple(chunk) for chunk in chunks_of("  Hello there.\n")] == [(2, 14, "Hello there.")]
    assert chunks_of(" \n ") == []


def test_passages_end_with_a_sentence_and_overlap_by_whole_ones() -> None:
    chunks = chunks_of(LONG)
    assert len(chunks) > 10
    assert all(chunk.text.endswith(".") and chunk.text.startswith("The quick") for chunk in chunks)
    overlaps = [before.end - after.start for before, after in itertools.pairwise(chunks)]
    assert all(0 < overlap <= 100 for overlap in overlaps)


def test_a_paragraph_is_the_best_border() -> None:
    first, second = "a" * 300 + ". " + "b" * 250 + ".", "c" * 700 + "."
    chunks = chunks_of(f"{first}\n\n{second}", overlap=0)
    assert [chunk.text for chunk in chunks] == [first, second]


def test_a_text_without_borders_is_cut_hard() -> None:
    assert "".join(chunk.text for chunk in chunks_of("x" * 2000)) == "x" * 2000


@given(st.text(alphabet=st.sampled_from("ab.? \n。é"), max_size=600), st.integers(5, 80), st.integers(0, 4))
def test_nothing_is_lost_and_places_are_true(text: str, size: int, overlap: int) -> None:
    chunks = chunks_of(text, size, overlap)
    covered: set[int] = set()
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.text
        assert 0 < len(chunk.text) <= size
        covered |= set(range(chunk.start, chunk.end))
    assert all(position in covered for position, sign in enumerate(text) if not sign.isspace())
    assert [chunk.start for chunk in chunks] == sorted({chunk.start for chunk in chunks})


def test_the_usual_size() -> None:
    assert max(len(chunk.text) for chunk in chunks_of(LONG)) <= CHUNK_CHARS
