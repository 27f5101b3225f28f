"""Pictures: accepted files, the messages of refusals, and no access to other files."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from callsheet.media.compose.errors import PictureRefused
from callsheet.media.compose.markdown import parse
from callsheet.media.compose.sources import Fetch, collect, from_folder, no_pictures
from tests.compose.conftest import MEANS, photo

SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>'


def bomb(side: int) -> bytes:
    """A small PNG whose header promises a great many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


async def collected(reference: str, folder: Path, fetch: Fetch) -> dict[str, str]:
    target = folder / "collected"
    target.mkdir()
    return await collect(parse(f"## A\n![]({reference})\nText."), target, fetch, MEANS)


async def test_a_picture_beside_the_script_is_taken(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    files = await collected("a.png", tmp_path, from_folder(tmp_path))
    assert (tmp_path / "collected" / files["a.png"]).read_bytes() == (tmp_path / "a.png").read_bytes()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (SVG, "is SVG, which is not taken; save it as PNG"),
        (b"", "is empty"),
        (b"<html><body>not found", "is a web page"),
        (b"just text", "is no picture that is known here; PNG, JPEG"),
        (bomb(30_000), "has more than 50000000 pixels"),
        (bomb(500), "is damaged"),
        (bomb(1), "of which nothing can be seen"),
    ],
    ids=["svg", "empty", "html", "text", "bomb", "cut", "dot"],
)
async def test_what_is_no_picture_is_refused_by_name(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(PictureRefused) as excinfo:
        await collected("a.png", tmp_path, from_folder(tmp_path))
    assert says in str(excinfo.value)
    assert str(excinfo.value).startswith("line 2: the picture 'a.png'")
    assert str(tmp_path) not in str(excinfo.value)


@pytest.mark.parametrize("reference", ["../secret.png", "link.png", "missing.png", "/etc/hostname"])
async def test_a_script_cannot_name_what_is_not_in_its_folder(reference: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    photo(tmp_path / "secret.png")
    (inside / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(PictureRefused, match="no such file"):
        await collected(reference, inside, from_folder(inside))


@pytest.mark.parametrize("reference", ["https://example.com/a.png", "file:///etc/hostname", "data:image/png;base64,AA"])
async def test_addresses_are_not_fetched(reference: str, tmp_path: Path) -> None:
    with pytest.raises(PictureRefused, match="addresses are not fetched here"):
        await collected(reference, tmp_path, from_folder(tmp_path))


async def test_a_caller_without_pictures_refuses_them(tmp_path: Path) -> None:
    with pytest.raises(PictureRefused, match="line 2: the picture 'object:a' cannot be had"):
        await collected("object:a", tmp_path, no_pictures)
