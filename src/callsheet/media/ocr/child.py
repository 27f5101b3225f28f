"""The child process: read frames from stdin until it closes, and answer each on stdout. Runs in the sandbox.

A question is the picture's size, a flag and the picture; an answer is its size and JSON. Prints of libraries go to
stderr.
"""

from __future__ import annotations

import gc
import json
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from callsheet.media.errors import MediaError

from .engines import Engine, load
from .records import Region
from .regions import regions

QUESTION = struct.Struct("!I?")  # bytes of the picture, thorough
ANSWER = struct.Struct("!I")


def main(engine: str, languages: str, min_confidence: str, data: str) -> None:
    """Serve frames until stdin closes. `languages` are joined by "+"; `data` is a folder or empty."""
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    codes = languages.split("+")
    gc.disable()  # modules stay in memory: garbage collection during their import finds nothing
    try:
        reader = load(engine, Path(data) if data else None)
    except MediaError as error:
        _tell(answers, {"error": error.code, "text": str(error)})
        return
    gc.freeze()
    gc.enable()
    _tell(answers, {"engine": reader.version})
    while len(head := questions.read(QUESTION.size)) == QUESTION.size:
        size, thorough = QUESTION.unpack(head)
        picture = questions.read(size)
        _tell(answers, _answer(reader, picture, codes, float(min_confidence), thorough=thorough))


def _answer(
    reader: Engine, picture: bytes, codes: Sequence[str], min_confidence: float, *, thorough: bool
) -> dict[str, Any]:
    try:
        words = reader.read(picture, codes, thorough=thorough)
    except MediaError as error:
        return {"error": error.code, "text": str(error)}
    except MemoryError:
        return {"error": "media_limit", "text": "the frame needs more memory than reading it may take"}
    lines: list[Region] = regions(words, min_confidence)
    return {"regions": lines}


def _tell(answers: BinaryIO, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    answers.write(ANSWER.pack(len(body)) + body)
    answers.flush()
