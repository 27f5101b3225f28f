from __future__ import annotations

import numpy as np
import pytest

from callsheet.media.sampling.frame_filter import Gray, phash, similarity


def picture(seed: int) -> Gray:
    """Large parts, none of them like another."""
    coarse = np.random.default_rng(seed).integers(20, 200, (8, 8))
    return np.kron(coarse, np.ones((20, 40))).astype(np.uint8)


def test_the_same_picture_a_little_brighter_or_noisy_has_the_same_hash() -> None:
    one = picture(1)
    noise = np.random.default_rng(9).integers(0, 6, one.shape).astype(np.uint8)
    assert similarity(phash(one), phash(one + 20)) >= 0.95
    assert similarity(phash(one), phash(one + noise)) >= 0.95


@pytest.mark.parametrize("seed", range(2, 8))
def test_another_picture_has_another_hash(seed: int) -> None:
    assert similarity(phash(picture(1)), phash(picture(seed))) < 0.8


def test_similarity_is_the_share_of_equal_bits() -> None:
    assert similarity(0, 0) == 1
    assert similarity(0, 2**64 - 1) == 0
    assert similarity(0, 0b111) == 1 - 3 / 64


def test_the_hash_of_a_known_picture_does_not_change() -> None:
    """The hash is stored as long as its frame."""
    assert f"{phash(picture(1)):016x}" == "fca784a84fe428b5"
