from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from callsheet.media.reading.entities import entities


def found(kind: str, text: str) -> list[tuple[str, str]]:
    return [(one.value, one.normalized_value) for one in entities(text) if one.entity_type == kind]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by @Marta_Builds and @bob.", [("@Marta_Builds", "@marta_builds"), ("@bob", "@bob")]),
        ("(@x9)", [("@x9", "@x9")]),
        ("mail marta@example.org or a.b@c", []),
        ("https://example.org/@marta", []),
        ("@ alone, @@twice", []),
        ("@marta @marta @Marta", [("@marta", "@marta"), ("@Marta", "@marta")]),
    ],
)
def test_mentions(text: str, expected: list[tuple[str, str]]) -> None:
    assert found("mention", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#Woodwork #open_day2", [("#Woodwork", "#woodwork"), ("#open_day2", "#open_day2")]),
        ("#Größe #日本", [("#Größe", "#grösse"), ("#日本", "#日本")]),
        ("example.org/a#part and C# and ##", []),
    ],
)
def test_hashtags(text: str, expected: list[tuple[str, str]]) -> None:
    assert found("hashtag", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go to https://Example.org/Open.", [("https://Example.org/Open", "https://example.org/Open")]),
        ("example.org, example.dev", [("example.org", "http://example.org"), ("example.dev", "http://example.dev")]),
        ("HTTPS://EXAMPLE.ORG:443/", [("HTTPS://EXAMPLE.ORG:443/", "https://example.org")]),
        ("www.foo.rs foo.rs/x", [("www.foo.rs", "http://www.foo.rs"), ("foo.rs/x", "http://foo.rs/x")]),
        ("http://main.py", [("http://main.py", "http://main.py")]),
        ("main.py lib.rs setup.sh README.md", []),
        ("self.name os.info x.info(1)", []),
        ("That is the end.So we went", []),
        ("marta@example.org", []),
        ("ftp://example.org/x", []),
        ("http:// http://[ https://:99999/", []),
    ],
)
def test_urls(text: str, expected: list[tuple[str, str]]) -> None:
    assert found("url", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("👍🏽", [("👍🏽", "👍")]),
        ("🇩🇪🇫🇷", [("🇩🇪", "🇩🇪"), ("🇫🇷", "🇫🇷")]),
        ("👨\u200d👩\u200d👧", [("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧")]),
        ("1\ufe0f\u20e3", [("1\ufe0f\u20e3", "1\u20e3")]),
        ("❤\ufe0f", [("❤\ufe0f", "❤")]),
        ("© 2026 ® ™ ↔ ☎", []),
        ("☎\ufe0f", [("☎\ufe0f", "☎")]),
        ("🏻 is a tone of skin, on nobody", []),
        ("👍🏽🏻", [("👍🏽", "👍")]),
    ],
)
def test_emoji(text: str, expected: list[tuple[str, str]]) -> None:
    assert found("emoji", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$1,299.00", "1299.00 USD"),
        ("1.299,00 €", "1299.00 EUR"),
        ("1.299 €", "1299.00 EUR"),
        ("£3.5", "3.50 GBP"),
        ("USD 20", "20.00 USD"),
        ("19,99 EUR", "19.99 EUR"),
        ("20 dollars", "20.00 USD"),
        ("$1.2 million", "1200000.00 USD"),
        ("$5k", "5000.00 USD"),
        ("14 percent", "14 %"),
        ("99.9%", "99.9 %"),
        ("12.31s", "12.31 s"),
        ("3 hours", "3 h"),
        ("-5°C", "-5 °C"),
        ("2,5 kg", "2.5 kg"),
        ("60fps", "60 fps"),
        ("1.2M views", "1200000 views"),
        ("5 m", "5 m"),
        ("+1 (415) 555-0132", "+14155550132"),
        ("+49 30 1234567", "+49301234567"),
        ("415.555.0132", "4155550132"),
        ("0800 123 4567", "08001234567"),
        ("555-1234", "5551234"),
        ("01 42 68 53 00", "0142685300"),
        ("1-800-555-0199", "18005550199"),
        ("12:30", "12:30"),
        ("2026-11-16", "2026-11-16"),
        ("192.168.0.1", "192.168.0.1"),
        ("1,204", "1204"),
        ("10,000,000.5", "10000000.5"),
        ("1.299", "1.299"),
        ("545923", "545923"),
        ("007", "007"),
        ("RE16", "16"),
        ("٣", "3"),
    ],
)
def test_a_number_has_its_context_and_one_form(text: str, expected: str) -> None:
    assert [form for _, form in found("number", f"so {text} then")] == [expected]


def test_digits_of_other_entities_are_no_numbers() -> None:
    assert found("number", "@bob99 #2026 https://example.org/17 1\ufe0f\u20e3") == []
    assert [value for value, _ in found("number", "1,2,3 10-20 1920x1080")] == [
        "1",
        "2",
        "3",
        "10",
        "20",
        "1920",
        "1080",
    ]


def test_entities_come_in_the_order_of_the_text() -> None:
    kinds = [one.entity_type for one in entities("5 of @marta at example.org #open 👍")]
    assert kinds == ["number", "mention", "url", "hashtag", "emoji"]


@hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    st.text(alphabet=st.one_of(st.characters(), st.sampled_from("@#$€.,:/-+()0123456789 a")), max_size=40)
)
def test_any_text_has_entities_that_stand_in_it(text: str) -> None:
    for one in entities(text):
        assert one.value
        assert one.normalized_value
        assert one.entity_type != "mention" or one.value.startswith("@")
