"""Marked text, tables and bars, as far as the commands need them. Programs take `--json`.

`[bold red]text[/]` is marked; `escape` keeps a text from being read so. Control characters of a text are never printed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO

Span = tuple[str, str]  # a text and its style
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
GAP = "  "
_MARK = re.compile(r"\\\[|\[(/|(?:bold|dim|red|green|yellow|blue|cyan)(?: \w+)?)\]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def escape(text: str) -> str:
    """Return a text that is drawn as it stands."""
    return text.replace("[", "\\[")


def spans(text: str) -> Iterator[Span]:
    """Yield the parts of a marked text with their styles."""
    styles, at = [""], 0
    for mark in _MARK.finditer(text):
        yield _CONTROL.sub("", text[at : mark.start()]), styles[-1]
        at = mark.end()
        if mark[1] is None:
            yield "[", styles[-1]
        elif mark[1] == "/":
            styles = styles[:-1] or [""]
        else:
            styles.append(mark[1])
    yield _CONTROL.sub("", text[at:]), styles[-1]


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@dataclass
class Text:
    """A text that is styled by places instead of by marks."""

    plain: str
    styles: list[tuple[str, int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.plain)

    def append(self, text: str, style: str = "") -> None:
        """Add a text at the end."""
        self.styles.append((style, len(self.plain), len(self.plain) + len(text)))
        self.plain += text

    def stylize(self, style: str, start: int, end: int) -> None:
        """Style the characters from `start` to before `end`."""
        self.styles.append((style, start, end))

    def spans(self) -> Iterator[Span]:
        """Yield the parts with their styles."""
        cuts = sorted({0, len(self.plain), *(cut for _, start, end in self.styles for cut in (start, end))})
        for start, end in pairwise(cuts):
            covering = [style for style, first, last in self.styles if first <= start and end <= last and style]
            yield _CONTROL.sub("", self.plain[start:end]), covering[-1] if covering else ""


class Console:
    """Standard output or standard error. `width` is that of the terminal unless it is given."""

    def __init__(self, *, stderr: bool = False, width: int | None = None, file: IO[str] | None = None) -> None:
        self.file = file or (sys.stderr if stderr else sys.stdout)
        self.is_terminal = self.file.isatty()
        self.width = width or shutil.get_terminal_size().columns
        self._styled = self.is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    def print(self, shown: Table | Text | str, *, markup: bool = True, soft_wrap: bool = False) -> None:
        """Print a table, or a text whose lines are folded at the width unless `soft_wrap`."""
        if isinstance(shown, Table):
            self.write(f"{self.styled(line)}\n" for line in shown.lines(self.width))
            return
        parts = shown.spans() if isinstance(shown, Text) else spans(shown if markup else escape(shown))
        lines = _lines(parts)
        if not soft_wrap:
            lines = [folded for line in lines for folded in fold(line, self.width)]
        self.write(f"{self.styled(line)}\n" for line in lines)

    def styled(self, line: Iterable[Span]) -> str:
        """Return a line as the terminal takes it; without colours elsewhere."""
        if not self._styled:
            return "".join(text for text, _ in line)
        return "".join(
            f"\x1b[{';'.join(STYLES[word] for word in style.split())}m{text}\x1b[0m" if style and text else text
            for text, style in line
        )

    def write(self, texts: Iterable[str]) -> None:
        """Write texts at once."""
        self.file.write("".join(texts))
        self.file.flush()


@dataclass
class Column:
    """A column of a table. One that is `no_wrap` keeps its width, the others are folded where there is no room."""

    name: str = ""
    style: str = ""
    no_wrap: bool = False
    min_width: int | None = None
    justify: str = "left"


class Table:
    """Rows below a bold head, without lines."""

    def __init__(self, *names: str, title: str = "", show_header: bool = True) -> None:
        self.columns = [Column(name) for name in names]
        self._title = title
        self._show_header = show_header
        self._rows: list[tuple[tuple[str, ...], str]] = []

    def add_column(
        self,
        name: str = "",
        *,
        style: str = "",
        no_wrap: bool = False,
        min_width: int | None = None,
        justify: str = "left",
    ) -> None:
        """Add a column on the right."""
        self.columns.append(Column(name, style, no_wrap, min_width, justify))

    def add_row(self, *cells: str, style: str = "") -> None:
        """Add a row of marked texts."""
        self._rows.append((cells, style))

    def lines(self, width: int) -> Iterator[list[Span]]:
        """Yield the table line by line, within a width where that can be."""
        head = [(tuple(escape(column.name) for column in self.columns), "bold")] if self._show_header else []
        rows = [
            [
                _lines(_apply_style(spans(cell), style or column.style))
                for cell, column in zip(cells, self.columns, strict=False)
            ]
            for cells, style in [*head, *self._rows]
        ]
        widths = _fitting(
            [_natural_width(rows, at, column) for at, column in enumerate(self.columns)], self.columns, width
        )
        if self._title:
            yield [(self._title, "bold")]
        for row in rows:
            cells_of_row = [[part for line in cell for part in fold(line, widths[at])] for at, cell in enumerate(row)]
            for n in range(max((len(cell) for cell in cells_of_row), default=0)):
                yield _join_cells([cell[n] if n < len(cell) else [] for cell in cells_of_row], widths, self.columns)


def fold(line: Sequence[Span], width: int) -> list[list[Span]]:
    """Return a line as several that fit, cut between words where there are some, else within one."""
    if sum(width_of(text) for text, _ in line) <= width:
        return [list(line)]
    characters = [(c, style) for text, style in line for c in text]
    lines: list[list[Span]] = []
    while characters:
        room, end = width, 0
        while end < len(characters) and (room := room - width_of(characters[end][0])) >= 0:
            end += 1
        end = max(1, end)
        if end < len(characters) and (spaces := [at for at in range(1, end + 1) if characters[at][0] == " "]):
            end = spaces[-1]
        lines.append(characters[:end])
        characters = characters[end + 1 :] if end < len(characters) and characters[end][0] == " " else characters[end:]
    return lines


def _lines(parts: Iterable[Span]) -> list[list[Span]]:
    lines: list[list[Span]] = [[]]
    for text, style in parts:
        first, *others = text.replace("\t", "    ").split("\n")
        lines[-1].append((first, style))
        lines += [[(other, style)] for other in others]
    return lines


def _apply_style(parts: Iterable[Span], style: str) -> Iterator[Span]:
    return ((text, own or style) for text, own in parts)


def _natural_width(rows: Sequence[Sequence[list[list[Span]]]], at: int, column: Column) -> int:
    widths = [sum(width_of(text) for text, _ in line) for row in rows if at < len(row) for line in row[at]]
    return max([*widths, column.min_width or 0, 1])


def _fitting(widths: list[int], columns: Sequence[Column], width: int) -> list[int]:
    """Take from the widest columns that may be folded what there is too much."""
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while over > 0:
        foldable = [at for at, c in enumerate(columns) if not c.no_wrap and widths[at] > max(c.min_width or 0, 8)]
        if not foldable:
            break
        widths[max(foldable, key=lambda at: widths[at])] -= 1
        over -= 1
    return widths


def _join_cells(cells: Sequence[list[Span]], widths: Sequence[int], columns: Sequence[Column]) -> list[Span]:
    line: list[Span] = []
    for at, cell in enumerate(cells):
        free = " " * max(0, widths[at] - sum(width_of(text) for text, _ in cell))
        gap = "" if at == 0 else GAP
        right = columns[at].justify == "right"
        line += [(gap + free if right else gap, ""), *cell, ("" if right or at == len(cells) - 1 else free, "")]
    return line
