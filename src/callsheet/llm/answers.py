"""Read plans and code out of a model's answers. A plan is asked for once more if it is no JSON steps."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pydantic
from pydantic import ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from .chat import Answer, Hear, Question, ask
from .errors import PlanUnreadable
from .settings import Endpoint

PLAN_PROMPT = """You break a goal down into a plan. Answer with JSON and nothing else, in this form:
{"steps": [{"title": "a few words", "detail": "what to do, and how to see that it is done"}]}
Put the steps in the order in which they are to be done. Each step is one action that can be checked. Leave out
greetings, remarks and Markdown. If the goal is unclear, let the first step find out what is missing."""
AGAIN = """That was not the JSON that was asked for ({fault}). Give the same plan once more, as one JSON object
{{"steps": [{{"title": "…", "detail": "…"}}]}} and nothing before or after it."""
FENCE = re.compile(r"```[\w-]*\s*\n(.*?)```", re.DOTALL)

CODE_PROMPT = """You write code. Give complete code that runs as it stands, each file in a fenced block of its own that
names the language, such as ```python. Before a block say in one sentence what it is for. Handle errors where they
can happen, use the standard library unless another one is asked for, and never leave a part out with a remark that it
goes on like that. If something was not said and matters, choose the simplest reading and say which one it was."""
_OPENING = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})\s*(?P<language>[^\s`{]*)[^`]*")


class Step(TypedDict):
    """A plan step."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc] # how pydantic configures a TypedDict

    title: Annotated[str, Field(min_length=1)]
    detail: NotRequired[str]


STEPS: TypeAdapter[list[Step]] = TypeAdapter(Annotated[list[Step], Field(min_length=1, max_length=200)])


@dataclass
class Plan:
    """The steps, and the model's answer that holds them."""

    steps: list[Step]
    answer: Answer

    def json(self) -> dict[str, Any]:
        """Return the plan as a job's result."""
        return {**self.answer.json(), "steps": self.steps}


async def plan(endpoint: Endpoint, question: Question, hear: Hear, again: Hear) -> Plan:
    """Ask for a plan; `again` is called with the fault before the second try. Raises PlanUnreadable after that try."""
    first = await ask(endpoint, question, hear)
    try:
        return Plan(steps_in(first.text), first)
    except ValueError as error:
        fault = str(error)
    again(fault)
    model_message = {"role": "assistant", "content": first.text}
    correction = {"role": "user", "content": AGAIN.format(fault=fault)}
    second = await ask(endpoint, question.after(model_message, correction), hear)
    second.usage = _sum(first.usage, second.usage)
    try:
        return Plan(steps_in(second.text), second)
    except ValueError as error:
        advice = "use a larger model, or pass options that make it write JSON"
        raise PlanUnreadable(f"the model gave no plan that can be read, twice ({error}); {advice}") from None


def steps_in(text: str) -> list[Step]:
    """Return the steps in a model's text: bare JSON, fenced, or among words. Raises ValueError with the fault."""
    for candidate in _candidates(text):
        try:
            content = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return _validate_steps(content)
    raise ValueError("there is no JSON in it")


def _candidates(text: str) -> list[str]:
    """Return the parts that may be JSON: the whole text, fenced blocks, and first to last bracket."""
    candidates = [text, *FENCE.findall(text)]
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            candidates.append(text[start : end + 1])
    return candidates


def _validate_steps(content: Any) -> list[Step]:
    steps = content.get("steps") if isinstance(content, dict) else content
    if isinstance(steps, list):
        steps = [{"title": step} if isinstance(step, str) else step for step in steps]
    try:
        return STEPS.validate_python(steps)
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"])) or "steps"
        raise ValueError(f"{where}: {fault['msg']}") from None


def _sum(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = {**first, **second}
    for name, value in both.items():
        if isinstance(first.get(name), int) and isinstance(value, int) and name in second:
            both[name] = first[name] + value
    return both


class Block(TypedDict):
    """A fenced code block with language and code."""

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
