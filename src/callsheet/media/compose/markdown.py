"""Parse Markdown into a script: front matter, `#` for the title, `##` for scenes, lists, one picture per scene.

`write_script` has a language model write a script from a brief: the prompt, and parsing of the answer.
"""

from __future__ import annotations

import html
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from .errors import InvalidScript, ScriptNotWritten, ScriptTooLarge
from .options import change, change_scene
from .script import (
    MAX_HEADING_CHARS,
    MAX_SCENE_CHARS,
    MAX_SCENES,
    MAX_SCRIPT_BYTES,
    MAX_TITLE_CHARS,
    Line,
    Picture,
    Scene,
    Script,
    Settings,
)
from .sentences import sentences

EXAMPLE = "a scene is `## Heading`, followed by a line of text"
_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*$")
_ITEM = re.compile(r"(?:[-*+]|\d{1,3}[.)])\s+(.+)")
_PICTURE = re.compile(r"!\[([^\]]{0,300})\]\( ?(?:<([^>]{1,1000})>|([^\s)]{1,1000}))(?: +\"[^\"]{0,300}\")? ?\)")
_COMMENT = re.compile(r"<!--(.{0,500}?)-->")
_RULE = re.compile(r"(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,}")
_LINK = re.compile(r"\[([^\]]{1,500})\]\([^)]{0,1000}\)|<(https?://[^>]{1,1000})>")
_MARK = re.compile(r"(\*\*\*|\*\*|__|~~|`{1,3})(?=\S)(.{1,500}?)(?<=\S)\1")
_STAR = re.compile(r"(?<!\w)([*_])(?=\S)([^*_]{1,500}?)(?<=\S)\1(?!\w)")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_TAG = re.compile(r"</?[A-Za-z][^>]{0,200}>")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u2028\u2029\ufdd0-\ufdef\ufffe\uffff]")

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


class _Open(NamedTuple):
    scene: Scene
    line: int
    lines: list[Line]
    paragraph: list[str]


def parse(text: str, settings: Settings = Settings()) -> Script:  # noqa: B008 - a tuple
    """Parse a script. The front matter overrides `settings`. Raises InvalidScript, which names the line."""
    if len(text) > MAX_SCRIPT_BYTES or len(text.encode("utf-8", "replace")) > MAX_SCRIPT_BYTES:
        raise ScriptTooLarge(f"the script has more than {MAX_SCRIPT_BYTES} bytes; make several videos of it")
    lines = _clean(text).split("\n")
    start, settings = _front_matter(lines, settings)
    reader = _Reader()
    for number, line in enumerate(lines[start:], start + 1):
        reader.take(number, line.strip())
    return reader.script(settings)


class _Reader:
    def __init__(self) -> None:
        self._title: _Open | None = None
        self._scenes: list[_Open] = []

    def take(self, number: int, line: str) -> None:
        """Process one line, stripped of surrounding space."""
        if len(line) > MAX_SCENE_CHARS:
            raise ScriptTooLarge(f"line {number}: more than {MAX_SCENE_CHARS} characters; make several scenes of it")
        line = _COMMENT.sub(lambda match: self._settings(number, match[1]), line)
        if not line or _RULE.fullmatch(line):
            self._close_paragraph()
        elif heading := _HEADING.fullmatch(line):
            self._heading(number, len(heading[1]), inline(heading[2]))
        else:
            self._content(number, line)

    def script(self, settings: Settings) -> Script:
        """Validate the scenes and return the script."""
        self._close_paragraph()
        if not self._scenes:
            raise InvalidScript(f"the script has no scenes; {EXAMPLE}")
        open_scenes = ([] if self._title is None else [self._title]) + self._scenes
        scenes = tuple(_finish(one) for one in open_scenes)
        return Script(scenes[0].heading, scenes, settings)

    def _heading(self, number: int, level: int, text: str) -> None:
        self._close_paragraph()
        if not text:
            raise InvalidScript(f"line {number}: a heading without text")
        if level == 1:
            if self._title is not None or self._scenes:
                raise InvalidScript(f"line {number}: a second title; scenes begin with ##")
            if len(text) > MAX_TITLE_CHARS:
                raise ScriptTooLarge(f"line {number}: a title has at most {MAX_TITLE_CHARS} characters")
            self._title = _Open(Scene(text, is_title=True), number, [], [])
        elif level == 2:  # noqa: PLR2004 - ##
            if len(text) > MAX_HEADING_CHARS:
                raise ScriptTooLarge(f"line {number}: a heading has at most {MAX_HEADING_CHARS} characters")
            if len(self._scenes) == MAX_SCENES:
                raise ScriptTooLarge(f"line {number}: a script has at most {MAX_SCENES} scenes")
            self._scenes.append(_Open(Scene(text), number, [], []))
        else:
            self._here(number).lines.append(Line(text, starts_paragraph=True))

    def _content(self, number: int, line: str) -> None:
        if line.startswith(("```", "~~~")):
            raise InvalidScript(f"line {number}: code cannot be narrated; say what it does, or show it as a picture")
        if line.startswith("|") and line.endswith("|") and len(line) > 1:
            raise InvalidScript(f"line {number}: a table cannot be narrated; use a list, or show it as a picture")
        line = _PICTURE.sub(lambda match: self._picture(number, match), line.lstrip("> ")).strip()
        if "![" in line and "](" in line:
            raise InvalidScript(f"line {number}: a picture is written ![text](path), or ![text](<a path with spaces>)")
        if item := _ITEM.fullmatch(line):
            self._close_paragraph()
            self._here(number).lines.append(Line(inline(item[1]), is_item=True, starts_paragraph=True))
        elif line:
            self._here(number).paragraph.append(line)

    def _picture(self, number: int, match: re.Match[str]) -> str:
        one = self._here(number)
        if one.scene.is_title:
            raise InvalidScript(f"line {number}: a picture before the first scene; put it below a ## heading")
        if one.scene.picture is not None:
            raise InvalidScript(f"line {number}: a second picture in one scene; begin another scene for it")
        picture = Picture((match[2] or match[3]).strip(), match[1], number)
        self._scenes[-1] = one._replace(scene=one.scene._replace(picture=picture))
        return " "

    def _settings(self, number: int, text: str) -> str:
        if not self._scenes:
            raise InvalidScript(f"line {number}: settings of a scene before the first scene; use front matter")
        one = self._scenes[-1]
        self._scenes[-1] = one._replace(scene=change_scene(one.scene, text, number))
        return " "

    def _here(self, number: int) -> _Open:
        if self._scenes:
            return self._scenes[-1]
        if self._title is None:
            raise InvalidScript(f"line {number}: text before the title and the first scene; {EXAMPLE}")
        return self._title

    def _close_paragraph(self) -> None:
        one = self._scenes[-1] if self._scenes else self._title
        if one is not None and one.paragraph:
            text = " ".join(one.paragraph)
            if len(text) > MAX_SCENE_CHARS:
                raise ScriptTooLarge(f"line {one.line}: a scene has at most {MAX_SCENE_CHARS} characters")
            texts = sentences(inline(text))
            one.lines.extend(Line(text, starts_paragraph=at == 0) for at, text in enumerate(texts))
            one.paragraph.clear()


def _finish(one: _Open) -> Scene:
    scene = one.scene._replace(lines=tuple(line for line in one.lines if line.text))
    if not scene.is_title and not scene.lines and scene.picture is None:
        raise InvalidScript(f"line {one.line}: the scene {scene.heading!r} is empty; write what is to be said")
    if sum(len(line.text) for line in scene.lines) > MAX_SCENE_CHARS:
        raise ScriptTooLarge(f"line {one.line}: a scene has at most {MAX_SCENE_CHARS} characters; make two of it")
    return scene


def _front_matter(lines: list[str], settings: Settings) -> tuple[int, Settings]:
    if lines[0].strip() != "---":
        return 0, settings
    end = next((at for at, line in enumerate(lines[1:], 1) if line.strip() == "---"), 0)
    if not end:
        raise InvalidScript("line 1: the front matter has no end; close it with a line of ---")
    for number, line in enumerate(lines[1:end], 2):
        settings = change(settings, line, number)
    return end + 1, settings


def _clean(text: str) -> str:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ")
    text = text.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair has no glyph and no sound
    return _CONTROL.sub(" ", text)


def inline(text: str) -> str:
    """Return text without Markdown's marks; links leave their text."""
    text = _PICTURE.sub(" ", text)
    text = _LINK.sub(lambda match: match[1] or match[2], text)
    for _ in range(3):  # marks within marks
        text = _MARK.sub(r"\2", text)
        text = _STAR.sub(r"\2", text)
    text = _TAG.sub("", text)
    text = _ESCAPE.sub(r"\1", text)
    return " ".join(html.unescape(text).split())


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
