"""The system prompt for code, and the parser that takes fenced blocks out of the model's Markdown."""

from __future__ import annotations

import re
from typing import TypedDict

SYSTEM = """You write code. Give complete code that runs as it stands, each file in a fenced block of its own that
names the language, such as ```python. Before a block say in one sentence what it is for. Handle errors where they
can happen, use the standard library unless another one is asked for, and never leave a part out with a remark that it
goes on like that. If something was not said and matters, choose the simplest reading and say which one it was."""
_OPENING = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})\s*(?P<language>[^\s`{]*)[^`]*")


class Block(TypedDict):
    """One fenced code block: its language and its code."""

    language: str
    code: str


def blocks_in(text: str) -> list[Block]:
    """Return the fenced blocks of a Markdown text, in order. A block without a closing fence ends with the text."""
    blocks: list[Block] = []
    fence = language = ""
    code: list[str] = []
    for line in text.split("\n"):
        if fence:
            if _closes(line, fence):
                blocks.append(Block(language=language, code="\n".join(code)))
                fence, code = "", []
            else:
                code.append(line)
        elif opening := _OPENING.fullmatch(line.rstrip("\r")):
            fence, language = opening["fence"], opening["language"].lower()
    if fence:
        blocks.append(Block(language=language, code="\n".join(code)))
    return blocks


def _closes(line: str, fence: str) -> bool:
    """Whether a line closes the fence: it repeats the fence's sign, at least as often, and has no other text."""
    bare = line.strip()
    return len(bare) >= len(fence) and set(bare) == {fence[0]}
