"""Markdown becomes a script; errors explain the problem."""

from __future__ import annotations

import time

import pytest

from callsheet.media.compose.errors import InvalidScript, ScriptNotWritten, ScriptTooLarge
from callsheet.media.compose.markdown import markdown_in, parse, write_script
from callsheet.media.compose.sentences import pieces, sentences

WHOLE = """\
---
size: 1080p
theme: light
accent: #ff7a59
language: en-gb
fps: 25
speed: 180
---
# The *title*

What it is about.

## First & foremost
<!-- duration: 8.5; theme: dark -->
One **bold** sentence with a [link](https://example.com). A second,
on the next line!

## Second
<!-- layout: full -->
![a boat](object:pictures/boat.jpg)
- an item
- another `item`
"""


def test_a_script_is_read_whole() -> None:
    script = parse(WHOLE)
    assert (script.settings.width, script.settings.height, script.settings.fps) == (1920, 1080, 25)
    assert (script.settings.theme, script.settings.accent, script.settings.language) == ("light", "#ff7a59", "en-gb")
    assert script.settings.words_per_minute == 180
    title, first, second = script.scenes
    assert (script.title, title.is_title, title.narration_texts) == (
        "The title",
        True,
        ("The title", "What it is about."),
    )
    assert first.heading == "First & foremost"
    assert (first.duration_s, first.theme) == (8.5, "dark")
    assert first.narration_texts == ("One bold sentence with a link.", "A second, on the next line!")
    assert second.picture is not None
    assert (second.picture.reference, second.picture.text) == ("object:pictures/boat.jpg", "a boat")
    assert [(line.text, line.is_item) for line in second.lines] == [("an item", True), ("another item", True)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no scenes"),
        ("# Only a title\n\nand text", "no scenes"),
        ("## A\n\n## B\ntext", "line 1: the scene 'A' is empty"),
        ("hello\n## A\ntext", "line 1: text before"),
        ("## A\ntext\n# Title", "line 3: a second title"),
        ("## A\n![](a.png)\n![](b.png)", "line 3: a second picture"),
        ("## A\n![x](my boat.png)", "line 2: a picture is written ![text](path)"),
        ("# T\n![](a.png)\n## A\nx", "line 2: a picture before the first scene"),
        ("## A\n```python\nx\n```", "line 2: code cannot be narrated"),
        ("## A\n| a | b |", "line 2: a table"),
        ("---\nsize: 13x13\n---\n## A\nx", "line 2: size: sides from"),
        ("---\nsize: 1281x720\n---\n## A\nx", "line 2: size: both sides have to be even"),
        ("---\ncolour: red\n---\n## A\nx", "line 2: 'colour' is no setting; known are accent"),
        ("---\nfps: 31\n---\n## A\nx", "line 2: fps: one of 24"),
        ("---\naccent: red\n---\n## A\nx", "line 2: accent: a colour such as"),
        ("---\ntheme: dark\n## A\nx", "front matter has no end"),
        ("## A\n<!-- duration: 0 -->\nx", "line 2: duration: seconds"),
        ("## A\n<!-- speed: 3 -->\nx", "line 2: 'speed' is no setting of a scene"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, says: str) -> None:
    with pytest.raises(InvalidScript) as excinfo:
        parse(text)
    assert says in str(excinfo.value)


@pytest.mark.parametrize(
    "text",
    [
        "## A\n" + "word " * 2_000_000,
        "## A\n" + "<a" * 90_000,
        "## A\n" + "![" * 90_000,
        "## A\n" + "[" * 5_000 + "\n" + "*" * 5_000 + "\n" + "." * 5_000,
        "## A\n" + "a. " * 60_000,
        "".join(f"## {n}\nx\n" for n in range(300)),
        "## " + "x" * 500 + "\nx",
    ],
    ids=["10 MB", "tags", "pictures", "marks", "dots", "scenes", "heading"],
)
def test_too_much_text_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ScriptTooLarge):
        parse(text)
    assert time.process_time() - began < 30  # some hundredths; minutes, were it read


@pytest.mark.parametrize(
    ("text", "expected_texts"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It costs 3.50 euros, e.g. in May. Dr. Who agrees.", ["It costs 3.50 euros, e.g. in May.", "Dr. Who agrees."]),
        ("太阳落山，一天就结束了。所以每个人都读。", ["太阳落山，一天就结束了。", "所以每个人都读。"]),
        ("كيف حالك؟ أنا بخير.", ["كيف حالك؟", "أنا بخير."]),
        ("", []),
    ],
)
def test_sentences_end_where_they_end(text: str, expected_texts: list[str]) -> None:
    assert sentences(text) == expected_texts


@pytest.mark.parametrize("most", [20, 84, 200])
@pytest.mark.parametrize(
    "text", ["A sentence, with clauses; and more words that follow it in a row.", "x" * 500, "字" * 300, "a b " * 90]
)
def test_pieces_lose_nothing_and_keep_their_places(text: str, most: int) -> None:
    result = pieces(text, most)
    assert "".join(piece for _, piece in result).replace(" ", "") == text.replace(" ", "")
    assert all(text[place:].startswith(piece) for place, piece in result)
    assert all(0 < len(piece) <= most for _, piece in result)
    assert min(len(piece) for _, piece in result) >= min(3, len(text))


async def test_a_model_writes_the_script_and_is_told_what_was_wrong() -> None:
    requests: list[str] = []
    answers = ["I cannot.", "<think># no</think>Sure:\n```markdown\n# T\n## A\nSaid.\n```\nHave fun!"]

    async def write(prompt: str) -> str:
        requests.append(prompt)
        return answers[len(requests) - 1]

    text, script = await write_script("About boats", write)
    assert text == "# T\n## A\nSaid."
    assert script.scenes[1].narration_texts == ("Said.",)
    assert "About boats" in requests[0]
    assert "could not be used: " in requests[1]


async def test_a_model_that_writes_no_script_is_an_error_and_not_a_video() -> None:
    async def write(prompt: str) -> str:
        return "no"

    with pytest.raises(ScriptNotWritten, match="in 3 tries"):
        await write_script("About boats", write)


def test_an_answer_without_a_fence_is_taken_from_its_first_heading() -> None:
    assert markdown_in("Here it is.\n\n# T\n## A\nx\n") == "# T\n## A\nx"
