"""Have a language model write a script from a brief: the prompt, and parsing of the answer."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from .errors import InvalidScript, ScriptNotWritten
from .markdown import parse
from .script import Script, Settings

MAX_BRIEF_CHARS = 20_000
TRIES = 3
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"```[a-z]*\n(.*?)\n?```", re.DOTALL)
RULES = """\
Write the script of a short narrated video in Markdown, and nothing else: no explanation, no code fence.
- The first line is the title: `# Title`.
- Then two to eight scenes. Each begins with a heading of at most eight words: `## Heading`.
- Below a heading stand one to four short sentences that a voice will read aloud, or two to five items (`- item`).
- No pictures, no tables, no code, no HTML, no stage directions, no emoji.
- Write in the language of the brief.
"""

Write = Callable[[str], Awaitable[str]]


def prompt_for(brief: str, complaint: str = "") -> str:
    """Return the prompt, including the fault of the previous answer."""
    again = f"\nYour last answer could not be used: {complaint}\nWrite it again by the rules.\n" if complaint else ""
    return f"{RULES}{again}\nThe brief:\n\n{brief}\n"


async def write_script(brief: str, write: Write, settings: Settings = Settings()) -> tuple[str, Script]:  # noqa: B008
    """Return the Markdown that a model wrote for a brief, and its script. Raises InvalidScript or ScriptNotWritten."""
    brief = brief.strip()
    if not brief:
        raise InvalidScript("there is neither a script nor a brief")
    if len(brief) > MAX_BRIEF_CHARS:
        raise InvalidScript(f"a brief has at most {MAX_BRIEF_CHARS} characters")
    complaint = ""
    for _ in range(TRIES):
        text = markdown_in(await write(prompt_for(brief, complaint)))
        try:
            script = parse(text, settings)
        except InvalidScript as error:
            complaint = str(error)
            continue
        if script.pictures:
            complaint = "it has pictures, and there are none"
            continue
        return text, script
    raise ScriptNotWritten(f"the model wrote no usable script in {TRIES} tries; the last problem: {complaint}")


def markdown_in(answer: str) -> str:
    """Return the script inside an answer with thoughts before it or a fence around it."""
    answer = _THOUGHT.sub("", answer).strip()
    fence = _FENCE.search(answer)
    text = fence[1] if fence and "##" in fence[1] else answer
    start = re.search(r"^#{1,2} ", text, re.MULTILINE)
    return text[start.start() :].strip() if start else text.strip()
