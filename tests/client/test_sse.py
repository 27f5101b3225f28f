"""The parser of server-sent events, against the WHATWG rules, however its bytes are cut."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callsheet.client.errors import EventTooLarge
from callsheet.net.sse import LIMIT_BYTES, Frame, Parser


def parsed(*chunks: bytes) -> list[Frame]:
    parser = Parser(EventTooLarge)
    return [frame for chunk in chunks for frame in parser.feed(chunk)]


def cut(text: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [Frame("message", "a", "")]),
        (b"data:a\r\rdata:b\r\n\r\ndata:c\n\n", [Frame("message", text, "") for text in "abc"]),
        (b"data: 1\ndata:2\ndata:  3\n\n", [Frame("message", "1\n2\n 3", "")]),
        (b"event: x\nid: 7\ndata: a\n\ndata: b\n\n", [Frame("x", "a", "7"), Frame("message", "b", "7")]),
        (b"id: 7\ndata: a\n\nid\ndata: b\n\n", [Frame("message", "a", "7"), Frame("message", "b", "")]),
        (b"id: 7\ndata: a\n\nid: 8\0\ndata: b\n\n", [Frame("message", "a", "7"), Frame("message", "b", "7")]),
        (b": ping\n\n:\ndata: a\n\n", [Frame("message", "a", "")]),
        (b"data\n\ndata:\ndata:\n\n", [Frame("message", "", ""), Frame("message", "\n", "")]),
        (b"event: x\n\ndata: a\n\n", [Frame("message", "a", "")]),
        (b"id: 9\n\ndata: a\n\n", [Frame("message", "a", "9")]),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [Frame("message", "a", "")]),
        ("data: ü☃\U0001f600\u2028\n\n".encode(), [Frame("message", "ü☃\U0001f600\u2028", "")]),
        (b"data: \xff\xc3\n\n", [Frame("message", "\ufffd\ufffd", "")]),
        (b"Data: a\n\nwhatever: b\ndata : c\n\n", []),
        (b"data: a\n\ndata: never ended\n", [Frame("message", "a", "")]),
        (b"data: a: b\n\n", [Frame("message", "a: b", "")]),
    ],
)
def test_a_stream_gives_what_the_standard_says(stream: bytes, expected: list[Frame]) -> None:
    assert parsed(stream) == expected
    assert parsed(*(bytes([byte]) for byte in stream)) == expected


line = st.one_of(
    st.sampled_from([b"", b"data: a", b"data:b", b"data", b"id: 7", b"id: \0", b"id", b"event: x", b":", b"retry: 5"]),
    st.sampled_from(["data: ü☃\U0001f600".encode(), b"\xef\xbb\xbf", b"data: \xff\xe2\x82", b"x: y", b"data: :"]),
    st.binary(max_size=8),
)
streams = st.lists(st.tuples(line, st.sampled_from([b"\n", b"\r", b"\r\n"]))).map(
    lambda parts: b"".join(text + end for text, end in parts)
)


@given(streams, st.lists(st.integers(min_value=0, max_value=1 << 16)))
@example(b"data: a\r\n\r\n", [8, 9, 10])
@example(b"\xef\xbb\xbfdata: a\n\n", [1, 2])
def test_any_cut_gives_the_same_events(stream: bytes, places: list[int]) -> None:
    assert parsed(*cut(stream, places)) == parsed(stream)


@given(st.lists(st.tuples(st.text("abc.-0123", max_size=5), st.text(max_size=20))))
def test_what_a_server_writes_is_read_back(events: list[tuple[str, str]]) -> None:
    written_text = [(name, text.replace("\r", "").encode("utf-8", "replace").decode()) for name, text in events]
    stream = "".join(
        f"id: {number}\nevent: {name}\n" + "".join(f"data: {part}\n" for part in text.split("\n")) + "\n"
        for number, (name, text) in enumerate(written_text)
    )
    expected = [Frame(name or "message", text, str(number)) for number, (name, text) in enumerate(written_text)]
    assert parsed(stream.encode()) == expected


def test_an_event_is_given_with_the_byte_that_ends_it() -> None:
    parser = Parser(EventTooLarge)
    assert list(parser.feed(b"data: a\r")) == []
    assert list(parser.feed(b"\r")) == [Frame("message", "a", "")]
    assert list(parser.feed(b"\ndata: b\n\n")) == [Frame("message", "b", "")]


@pytest.mark.parametrize(
    ("value", "expected"), [(b"250", 250), (b"1e3", None), (b"-1", None), (b"", None), (b"\xd9\xa3", None)]
)
def test_retry_is_digits_or_nothing(value: bytes, expected: int | None) -> None:
    parser = Parser(EventTooLarge)
    assert list(parser.feed(b"retry: " + value + b"\n")) == []
    assert parser.retry_ms == expected


def test_a_retry_of_many_digits_does_no_harm() -> None:
    parser = Parser(EventTooLarge)
    assert list(parser.feed(b"retry: " + b"9" * 10_000 + b"\n")) == []
    assert parser.retry_ms == 10**9


def test_an_id_counts_when_its_event_is_whole() -> None:
    parser = Parser(EventTooLarge)
    assert len(list(parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n"))) == 1
    assert parser.last_id == "1"


@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_an_event_over_the_limit_is_refused_after_those_before_it(size: int) -> None:
    parser, taken = Parser(EventTooLarge, limit_bytes=2000), []
    stream = b"data: a\n\n" + b"data: " + b"x" * 1900 + b"\n\n" + b"data: " + b"y" * 1000 + b"\ndata: " + b"z" * 1000
    with pytest.raises(EventTooLarge, match="more than 2000 bytes"):
        for start in range(0, len(stream), size):
            for frame in parser.feed(stream[start : start + size]):
                taken.append(frame.data[0])  # noqa: PERF401 - what came before the error counts
    assert taken == ["a", "x"]


def test_many_comments_are_no_large_event() -> None:
    parser = Parser(EventTooLarge, limit_bytes=100)
    for _ in range(100):
        assert list(parser.feed(b": ping\n")) == []
    assert len(list(parser.feed(b"data: a\n\n"))) == 1
    assert LIMIT_BYTES == 1 << 20
