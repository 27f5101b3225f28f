"""Cosine similarity, exact. Vectors are kept at length one as float4, so that a cosine is a dot product.

With numpy a page of vectors is one product; without it, about 20 µs for a vector of 384.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from operator import mul
from typing import Any

np: Any = import_module("numpy") if find_spec("numpy") is not None else None  # optional


def unit(vector: Sequence[float]) -> list[float]:
    """The vector at length one; one of length zero stays and is like nothing."""
    length = math.sqrt(math.fsum(x * x for x in vector))
    return [x / length for x in vector] if length > 0 else list(vector)


def packed(vector: Sequence[float]) -> bytes:
    """As bytes, four for each number."""
    return array("f", vector).tobytes()


def unpacked(data: bytes) -> list[float]:
    """The numbers of `packed`."""
    numbers = array("f")
    numbers.frombytes(data)
    return numbers.tolist()


def scores(query: bytes, vectors: Sequence[bytes]) -> list[float]:
    """The cosine of each vector with the query, all packed and at length one."""
    if np is not None and vectors:
        page = np.frombuffer(b"".join(vectors), dtype="float32").reshape(len(vectors), -1)
        found: list[float] = (page @ np.frombuffer(query, dtype="float32")).tolist()
        return found
    wanted = unpacked(query)
    return [math.fsum(map(mul, wanted, unpacked(vector))) for vector in vectors]
