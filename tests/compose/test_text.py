"""Fonts and text: every character has a glyph or an error message, and no line exceeds its width."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from PIL import Image, ImageFont, features

from callsheet.media.compose import fonts
from callsheet.media.compose.errors import MissingGlyphs, ShapingMissing
from callsheet.media.compose.layout import lay_out
from callsheet.media.compose.markdown import parse
from callsheet.media.compose.script import Scene, Settings
from callsheet.media.compose.sfnt import NotAFont, read_bytes, read_fonts
from callsheet.media.compose.text import Style, draw_line, is_right_to_left, width_of, wrap_lines
from callsheet.media.compose.theme import contrast, ground, rgb_of, theme_of

BARE = ()  # a machine without any font


def test_without_any_font_there_is_the_one_inside_pillow() -> None:
    faces = fonts.choose(["Plain text, 100 % — “quoted”…"], BARE)
    assert [face.path for face in faces.plain] == [""]
    assert width_of("Plain text — …", Style.of(faces, 20)) > 50


@pytest.mark.parametrize(
    ("text", "names", "package"),
    [
        ("Hello 你好", ["你 (U+4F60)", "好 (U+597D)"], "fonts-noto-cjk"),
        ("A 🦄", ["🦄 (U+1F984)"], "fonts-noto-color-emoji"),
        ("Žluť", ["ť (U+0165)"], "fonts-noto-core"),
    ],
)
def test_characters_that_no_font_has_are_named_with_what_to_install(text: str, names: list[str], package: str) -> None:
    with pytest.raises(MissingGlyphs) as excinfo:
        fonts.choose([text], BARE)
    assert all(name in str(excinfo.value) for name in names)
    assert package in str(excinfo.value)
    assert "CALLSHEET_FONTS" in str(excinfo.value)


def test_signs_that_only_steer_others_need_no_glyph() -> None:
    assert fonts.drawn_characters(["a\u200d\ufe0f \u00a0\u200fb"]) == {"a", "b"}


def test_letters_that_join_are_refused_without_the_library_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "check", lambda name: name != "raqm")
    with pytest.raises(ShapingMissing, match="Arabic text needs letters that join"):
        fonts.choose(["مرحبا"], BARE)


def test_a_font_has_what_freetype_draws() -> None:
    """The parser of character maps against FreeType itself, on Pillow's own font: no glyph is drawn as a box."""
    face = fonts.pillow_font()
    font = ImageFont.load_default(24)
    assert isinstance(font, ImageFont.FreeTypeFont)
    box = bytes(font.getmask("\U0001f984"))
    pictures = {chr(code) for code in range(0x21, 0x17F) if bytes(font.getmask(chr(code))) != box}
    assert {character for character in pictures if fonts.needs_glyph(character)} == {
        chr(code) for code in range(0x21, 0x17F) if face.has(chr(code)) and fonts.needs_glyph(chr(code))
    }


def test_a_file_that_is_no_font_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.ttf").write_bytes(b"no font at all")
    (tmp_path / "b.otf").write_bytes(b"OTTO\x00\x10" + bytes(40))
    with pytest.raises(NotAFont):
        read_fonts(tmp_path / "a.ttf")
    assert fonts.choose(["text"], (tmp_path,)).plain[0].path == ""


def with_table(font: bytes, tag: bytes, table: bytes) -> bytes:
    """Return the font with one additional table."""
    (count,) = struct.unpack(">H", font[4:6])
    rows = [list(struct.unpack(">4sIII", font[12 + 16 * at : 28 + 16 * at])) for at in range(count)]
    rows = [[name, total, offset + 16, length] for name, total, offset, length in rows]
    rows.append([tag, 0, len(font) + 16, len(table)])
    head = font[:4] + struct.pack(">H", count + 1) + font[6:12] + b"".join(struct.pack(">4sIII", *row) for row in rows)
    return head + font[12 + 16 * count :] + table


def test_a_colour_font_that_would_be_drawn_blank_is_passed_over() -> None:
    """COLR version 1 has paintings and no layers; FreeType draws its empty outlines, which is nothing."""
    paintings = with_table(fonts.pillow_font_bytes(), b"COLR", struct.pack(">HHIIHI", 1, 0, 0, 0, 0, 0))
    with pytest.raises(NotAFont, match="paintings"):
        read_bytes(paintings)
    layers = read_bytes(with_table(fonts.pillow_font_bytes(), b"COLR", struct.pack(">HHIIH", 0, 3, 0, 0, 0)))
    assert layers.is_colour
    assert layers.has("a")


def test_every_line_fits_its_width_and_nothing_is_lost() -> None:
    style = Style.of(fonts.choose(["abc"], BARE), 30)
    text = "Some words, and one-that-is-rather-long " + "w" * 200 + " then the rest."
    lines = wrap_lines(text, style, 300)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert max(width_of(line, style) for line in lines) <= 300


def test_direction_is_that_of_the_first_letter() -> None:
    assert is_right_to_left("42 שלום hello")
    assert not is_right_to_left("42 hello שלום")
    assert not is_right_to_left("42")


def test_text_is_drawn_where_it_is_measured() -> None:
    style = Style.of(fonts.choose(["Hamburg"], BARE), 40)
    picture = Image.new("RGBA", (400, 100), (0, 0, 0, 0))
    draw_line(picture, (50, 70), "Hamburg", style, (255, 255, 255, 255))
    left, _, right, _ = picture.getchannel("A").getbbox() or (0, 0, 0, 0)
    assert abs(left - 50) <= 6
    assert abs(right - 50 - width_of("Hamburg", style)) <= 6


@pytest.mark.parametrize("size", [(1280, 720), (720, 1280), (320, 180), (1080, 1080)])
@pytest.mark.parametrize("aspect", [0.0, 1.5, 0.3])
@pytest.mark.parametrize("words", [1, 40, 900])
def test_no_text_stands_outside_its_place(size: tuple[int, int], aspect: float, words: int) -> None:
    settings = Settings(width=size[0], height=size[1])
    body = " ".join(["Something long happens here, of course."] * max(1, words // 6))
    scene = parse(f"## A heading that is not short, of eleven words in all, for a test\n{body}", settings).scenes[0]
    layout = lay_out(scene, settings, fonts.choose(["abc"], BARE), aspect)
    assert layout.text.x >= 0.05 * min(size)
    assert layout.text.edges[2] <= size[0] - 0.05 * min(size)
    blocks = [block for page in layout.pages for block in page]
    assert {block.line for block in blocks} == set(range(len(scene.lines)))
    for block in blocks:
        assert block.top + len(block.rows) * layout.body_style.line_height <= size[1] - 0.03 * min(size)
        assert max(width_of(row, layout.body_style) for row in block.rows) <= layout.text.width
    if layout.card is not None:
        apart = layout.card.x >= layout.text.edges[2] or layout.card.edges[3] <= layout.text.y
        assert apart or layout.card.edges[2] <= layout.text.x


def test_a_script_from_the_right_has_its_picture_on_the_left() -> None:
    settings = Settings()
    faces = fonts.choose(["abc"], BARE)
    left = lay_out(Scene("heading"), settings, faces, 1.3)
    assert not left.is_rtl
    right = lay_out(parse("## א\nא.", settings).scenes[0], settings, faces, 1.3)
    assert right.is_rtl
    assert right.card is not None
    assert right.card.edges[2] < right.text.x


@pytest.mark.parametrize("name", ["dark", "light"])
@pytest.mark.parametrize("accent", ["", "#000000", "#ffffff", "#ffd000", "#101040"])
def test_everything_can_be_read_in_every_theme(name: str, accent: str) -> None:
    theme = theme_of(name, accent)
    for back in (theme.top, theme.bottom):
        assert contrast(theme.ink, back) >= 12
        assert contrast(theme.faded, back) >= 4.5
    assert contrast(theme.accent, theme.top) >= 3
    assert ground(theme, (320, 180)).size == (320, 180)


def test_an_accent_that_can_be_seen_is_left_as_it_is() -> None:
    assert theme_of("dark", "#ff7a59").accent == rgb_of("#ff7a59")
