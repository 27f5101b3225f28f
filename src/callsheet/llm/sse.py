"""Parse server-sent events as OpenAI-compatible servers stream them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .errors import Garbled

LINE_BYTES = 1024 * 1024
OTHER_FIELDS = ("event", "id", "retry")


async def data_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield the `data` of each event; the last event needs no blank line. Raises Garbled for any other format."""
    data: list[str] = []
    async for line in _lines(chunks):
        name, _, value = line.partition(":")
        if not line:
            if data:
                yield "\n".join(data)
            data = []
        elif name == "data":
            data.append(value.removeprefix(" "))
        elif name and name not in OTHER_FIELDS:  # a line that begins with a colon is a comment
            raise Garbled(f"the server's stream has a line that is no event: {line[:120]!r}")
    if data:
        yield "\n".join(data)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield complete lines. The bytes are split, since `str.splitlines` also splits at U+2028, valid in JSON text."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _text(line)
        if len(rest) > LINE_BYTES:
            raise Garbled(f"the server's stream has a line of more than {LINE_BYTES} bytes")
    if rest:
        yield _text(rest)


def _text(line: bytes) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise Garbled("the server's stream is not UTF-8") from None
