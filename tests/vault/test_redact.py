from __future__ import annotations

import base64
import io
import json
import logging
import random
import urllib.parse
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import strategies as st

from callsheet.cli import logs
from callsheet.vault import Secret
from callsheet.vault.redact import LONGEST_LINE, Filter, Stream, redact
from callsheet.vault.secret import HIDDEN

WORDS = ("s3cr3t/with+odd=chars&ä\"'\\", "plain-but-long-enough", "two\nlines of a key", "日本語のひみつ鍵")


def written(word: str) -> Iterator[str]:
    """The ways in which a word reaches a log."""
    raw = word.encode()
    yield from (word, repr(word), json.dumps(word), json.dumps(word, ensure_ascii=False), json.dumps({"a": [word]}))
    yield from (urllib.parse.quote(word, safe=""), urllib.parse.quote_plus(word), urllib.parse.quote(word).lower())
    yield from (raw.hex(), raw.hex().upper(), repr(raw.hex()))
    for before in (b"", b"x", b"xy", b"user:"):
        for after in (b"", b"z", b"zz"):
            yield base64.b64encode(before + raw + after).decode()
            yield base64.urlsafe_b64encode(before + raw + after).decode().rstrip("=")


def leaks(text: str, word: str) -> bool:
    """Return whether the word, or the middle of an encoded form, is still legible."""
    raw = word.encode()
    forms = [word, urllib.parse.quote(word, safe=""), raw.hex(), base64.b64encode(raw).decode().rstrip("=")[:-1]]
    forms += [json.dumps(word)[1:-1]]
    forms += [base64.b64encode(b"0" * n + raw).decode().rstrip("=")[4:-1] for n in (1, 2)]
    return any(form.lower() in text.lower() for form in forms)


@pytest.mark.parametrize("word", WORDS)
def test_a_known_secret_is_taken_out_however_it_is_written(word: str) -> None:
    held = Secret(json.dumps({"secret_access_key": word, "region": "eu-central-1"}))
    for form in written(word):
        clean_text = redact(f"upload to eu-central-1 failed near >{form}< again")
        assert not leaks(clean_text, word), form
        assert HIDDEN in clean_text
        assert clean_text.startswith("upload to eu-central-1 failed near >")
    assert held.reveal_json()["region"] in redact("eu-central-1")


def test_a_secret_that_nobody_holds_any_more_is_not_looked_for() -> None:
    held = Secret("a-word-of-some-length")
    assert redact("a-word-of-some-length") == HIDDEN
    del held
    assert redact("a-word-of-some-length") == "a-word-of-some-length"


SHAPES = [
    ("GET https://bucket.s3.amazonaws.com/a/b.mp4?X-Amz-Signature=KEEPOUT&x=1 failed", "/a/b.mp4?***"),
    ("postgresql://app:KEEPOUT@db.example.org/app", "postgresql://app:***@db.example.org/app"),
    ("redis://:KEEP/OUT@host", "redis://:***@host"),
    ("https://KEEPOUT@github.example/x", "https://***@github.example/x"),
    ("Authorization: Bearer KEEPOUT.KEEPOUT.x", "Authorization: ***"),
    ("headers={'authorization': 'AWS4-HMAC-SHA256 Credential=KEEPOUT, Signature=KEEPOUT'}", "'authorization': '***'"),
    ('{"Authorization": "Basic KEEPOUT", "n": 1}', '"n": 1'),
    ("b'authorization', b'Bearer KEEPOUT'", "b'***'"),
    ("sent bearer KEEPOUTKEEPOUT to it", "sent bearer *** to it"),
    ("aws_secret_access_key=KEEPOUT region=eu", "region=eu"),
    ("AWS_SESSION_TOKEN: KEEPOUT", "AWS_SESSION_TOKEN: ***"),
    ('{"secretAccessKey": "KEEP\\"OUT", "bucket": "b"}', '"bucket": "b"'),
    ("&X-Amz-Credential=KEEPOUT&X-Amz-Date=1", "X-Amz-Date=1"),
    ("key AKIAKEEPOUTKEEPOUT12 is bad", "key *** is bad"),
    ("x-vault-token: KEEPOUT", "x-vault-token: ***"),
    ("token hvs.KEEPOUTKEEPOUTKEEPOUTKEEPOUT here", "token *** here"),
    ("password=KEEPOUT;host=h", "host=h"),
    ("jwt eyJKEEPOUTKEEPOUT.eyJKEEPOUTKEEPOUT.KEEPOUT end", "end"),
    ("Cookie: a=KEEPOUT; b=KEEPOUT", "Cookie: ***"),
]


@pytest.mark.parametrize(("line", "left"), SHAPES)
def test_what_looks_like_a_credential_is_taken_out(line: str, left: str) -> None:
    clean_text = redact(line)
    assert "KEEP" not in clean_text
    assert "OUT" not in clean_text.upper().replace("TIMEOUT", "")
    assert left in clean_text
    assert redact(clean_text) == clean_text


@pytest.mark.parametrize(
    "line",
    [
        "job 0198c1f2-7b3e-7cc0-a1a5-0d52b5f0f5b1 ended in 3.5 s",
        "GET https://example.org/a/b.mp4 gave 404",
        "claim_version=7 attempt=2 worker_id=w1 token_count: 12",
        "the key of dictionary entry 5 is missing",
        "a signature was asked for, the basic plan",
    ],
)
def test_ordinary_lines_stay_as_they_are(line: str) -> None:
    assert redact(line) == line


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(st.data())
def test_a_secret_across_the_borders_of_pieces_is_taken_out(data: st.DataObject) -> None:
    """Modelled on Buildkite's fuzz test: any text, any encoding, any cuts."""
    word = data.draw(st.sampled_from(WORDS))
    held = Secret(word)
    lines = []
    for _ in range(data.draw(st.integers(1, 4))):
        form = data.draw(st.sampled_from(list(written(word)) + [line for line, _ in SHAPES]))
        noise = data.draw(st.text(alphabet="abc xyz.-\u00fc", max_size=12))
        lines.append(
            noise
            + data.draw(st.sampled_from([" ", ">", "\t"]))
            + form
            + data.draw(st.sampled_from(["\n", "\r", "\r\n"]))
        )
    text = "".join(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=30)))
    stream = Stream()
    clean_text = (
        "".join(stream.feed(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)) + stream.close()
    )
    assert not leaks(clean_text, word)
    assert "KEEP" not in clean_text
    whole = Stream()
    assert clean_text == whole.feed(text) + whole.close()
    assert held is not None


def test_one_character_at_a_time() -> None:
    held = Secret(WORDS[0])
    text = "".join(f"line {form}\n" for form in written(WORDS[0]))
    stream = Stream()
    shown = "".join(map(stream.feed, text)) + stream.close()
    assert not leaks(shown, WORDS[0])
    assert shown.count("line ") == text.count("line ")
    assert held is not None


def test_a_line_without_an_end_is_hidden_whole_and_the_next_one_is_shown() -> None:
    stream = Stream()
    clean_text = "".join(stream.feed("x" * 10_000) for _ in range(20))
    clean_text += stream.feed("tail\nnext\n") + stream.feed("y" * (LONGEST_LINE + 1) + "\nlast") + stream.close()
    assert clean_text == f"{HIDDEN}\nnext\n{HIDDEN}\nlast"


def test_a_stream_holds_little() -> None:
    stream = Stream()
    for _ in range(200):
        stream.feed("z" * 5_000)
        assert len(stream._rest) <= LONGEST_LINE + 5_000


def fall(word: str) -> None:
    raise ValueError(f"bad key {word}")


def test_the_filter_leaves_nothing_in_a_record() -> None:
    held = Secret(WORDS[1])
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(Filter())
    logger = logging.Logger("x")  # noqa: LOG001 - of this test alone
    logger.addHandler(handler)
    try:
        fall(WORDS[1])
    except ValueError:
        logger.exception("cannot use %s with %s", WORDS[1], "https://a.example/x?sig=KEEPOUT", stack_info=True)
    assert WORDS[1] not in out.getvalue()
    assert "KEEPOUT" not in out.getvalue()
    assert "ValueError: bad key ***" in out.getvalue()
    assert held is not None


@pytest.mark.parametrize("format_name", ["human", "json"])
def test_the_log_of_the_command_line_has_no_secrets(format_name: str) -> None:
    held = Secret(WORDS[0])
    out = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.set_up(format_name, "info", out)
        try:
            fall(WORDS[0])
        except ValueError:
            fields = {"fields": {"url": f"https://a.example/?sig={WORDS[0]}", "more": {"deep": [WORDS[0]]}}}
            logging.getLogger("x").exception("cannot use %s", WORDS[0], extra=fields)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert not leaks(out.getvalue(), WORDS[0])
    assert "cannot use ***" in out.getvalue()
    if format_name == "json":
        assert json.loads(out.getvalue())["level"] == "error"
    assert held is not None


def test_random_cuts_of_a_long_log_never_leak() -> None:
    """10,000 lines, cut anywhere, with the secret in each tenth."""
    rand = random.Random(7)
    word = f"k{rand.getrandbits(128):032x}"
    held = Secret(word)
    text = "".join(f"{n} frame={n} fps=25 {word if n % 10 == 0 else ''} q=28\r" for n in range(10_000))
    stream, shown, at = Stream(), [], 0
    while at < len(text):
        size = rand.randint(1, 300)
        shown.append(stream.feed(text[at : at + size]))
        at += size
    joined = "".join(shown) + stream.close()
    assert word not in joined
    assert joined.count(HIDDEN) == 1_000
    assert held is not None
