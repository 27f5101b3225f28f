"""Find numbers and their units in a text: prices, percentages, measures, telephone numbers, times, dates.

| value               | normalised value  |                                                          |
|---------------------|-------------------|----------------------------------------------------------|
| $1,299.00, 1.299 €  | 1299.00 USD / EUR | a price has two decimals and its ISO 4217 code           |
| 14 percent, 14%     | 14 %              |                                                          |
| 12.31s, 3 hours     | 12.31 s, 3 h      | a measure has one space and the unit's short name        |
| 1.2M views          | 1200000 views     | k, M, B and T are multiplied                             |
| +1 (415) 555-0132   | +14155550132      | a telephone number has digits alone, and its plus        |
| 12:30, 2026-11-16   | as written        | times, dates, versions and addresses stay whole          |
| 214, 3.50           | 214, 3.5          | no thousands signs, no zeros at the end of decimals      |
| 007                 | 007               | a leading zero marks a code                              |
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

import regex

SIGNS = {
    "us$": "USD",
    "au$": "AUD",
    "a$": "AUD",
    "ca$": "CAD",
    "c$": "CAD",
    "nz$": "NZD",
    "hk$": "HKD",
    "s$": "SGD",
    "r$": "BRL",
    "mx$": "MXN",
    "$": "USD",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "₹": "INR",
    "₽": "RUB",
    "₩": "KRW",
    "₺": "TRY",
    "₴": "UAH",
    "₪": "ILS",
    "₫": "VND",
    "฿": "THB",
    "zł": "PLN",
    "kč": "CZK",
    "dollars": "USD",
    "dollar": "USD",
    "euros": "EUR",
    "euro": "EUR",
    "yen": "JPY",
}
CODES = (
    *("AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "HUF", "IDR", "ILS", "INR", "JPY", "KRW"),
    *("MXN", "NOK", "NZD", "PLN", "RUB", "SEK", "SGD", "THB", "TRY", "UAH", "USD", "ZAR"),
)
LETTERS = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}  # right behind the number; "5 m" is metres
WORDS = {"thousand": 10**3, "million": 10**6, "mio": 10**6, "billion": 10**9, "bn": 10**9, "trillion": 10**12}

# The short name first. Names of one letter count only as they are written here; "in" and "a" are left to English.
_MEASURES = """
% percent prozent pct, ‰ permille, km kilometers kilometres, m meters metres meter metre, cm centimeters,
mm millimeters, mi miles mile, ft feet foot, kg kilograms kilos kilo, g grams gram, mg, t tonnes tons,
lb lbs pounds, oz ounces, l L liters litres liter litre, ml mL, s sec secs second seconds, ms milliseconds,
min mins minute minutes, h hr hrs hour hours, days day, weeks week, months month, years year, °C ℃, °F ℉, °,
bit bits, B bytes byte, kB KB kilobytes, MB megabytes, GB gigabytes, TB terabytes, KiB, MiB, GiB, kbit/s kbps,
Mbit/s Mbps, Gbit/s Gbps, fps, px pixels, dpi, Hz, kHz, MHz, GHz, V volts, A amps, W watts, kW, MW, kWh, mAh,
dB, km/h kmh kph, mph, x ×, views view, likes like, followers follower, subscribers subscriber,
comments comment, people, users user, items item, times, points, stars
"""


def _units() -> Iterator[tuple[str, str]]:
    for measure in _MEASURES.split(","):
        short, *others = measure.split()
        yield from ((name, short) for name in (short, *others))


UNITS = dict(_units())


class Number(NamedTuple):
    """A number: its position, its written form, and its normalised form."""

    start: int
    end: int
    value: str
    normalized_value: str


_AMOUNT = r"\d{1,3}(?:[,.'’\u202f\u00a0 ]\d{3})+(?:[.,]\d+)?(?!\d)|(?<!\d[.,])\d+[.,]\d+(?![.,]?\d)|\d+"
_SIGN = "|".join(regex.escape(sign) for sign in sorted(SIGNS, key=len, reverse=True))
_SYMBOL = "|".join(regex.escape(sign.upper()) for sign in sorted(SIGNS, key=len, reverse=True) if not sign.isalpha())
_CODE = "|".join(CODES)
_MAGNITUDE = rf"[{''.join(LETTERS)}](?!\w)| ?(?i:{'|'.join(WORDS)})(?!\w)"
_UNIT_NAMES = "|".join(regex.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
_UNIT = rf"[ -]?(?:{_UNIT_NAMES}|(?i:{'|'.join(unit for unit in UNITS if len(unit) > 3)}))(?!\w)"  # noqa: PLR2004 - words
# Of 20 numbers as people write them, these find all; the package phonenumbers (23 MB) finds 13 when told a country,
# else 9. Neither takes one of 20 dates, prices and codes for a telephone number.
_PHONE = regex.compile(
    r"(?<![\w.,/-])(?:"
    r"\+\d{1,3}[ .\-/]?(?:\(\d{1,5}\)[ .\-/]?)?\d{1,4}(?:[ .\-/]?\d{2,8}){1,4}"  # with a country
    r"|\(\d{2,5}\)[ .\-/]?\d{2,8}(?:[ .\-]\d{2,8}){0,3}"  # with an area
    r"|0\d{1,4}[ /\-]\d{3,8}(?:[ \-]\d{2,8}){0,3}"  # with a leading zero
    r"|0\d(?:[ .]\d{2}){4}"  # as in France
    r"|(?:1-)?\d{3}[ .\-]\d{3}[ .\-]\d{4}|\d{3}-\d{4}"  # as in North America
    r")(?![\w:]|[.,/-]\d)"
)
_WHOLE = regex.compile(
    r"(?<![\w.:/-])(?:"
    r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?)?"  # dates
    r"|\d{1,2}[./]\d{1,2}[./]\d{4}"
    r"|\d{1,3}(?::\d{2}){1,2}(?:[.,]\d+)?"  # times
    r"|\d+(?:\.\d+){2,}"  # versions and addresses
    r")(?![\w:]|[.,/-]\d)"
)
_MINUS = r"(?:(?<![\w.,)])[-−](?=\S))?"
_NUMBER = regex.compile(
    rf"(?P<sign>(?<!\w)(?:{_SYMBOL}|(?:{_CODE})(?!\w)) ?)?(?P<amount>{_MINUS}(?:{_AMOUNT}))"
    rf"(?P<magnitude>{_MAGNITUDE})?"
    rf"(?:(?P<after> ?(?:(?i:{_SIGN})|{_CODE})(?!\w))|(?P<unit>{_UNIT}))?"
)
_MIN_PHONE_DIGITS, _MAX_PHONE_DIGITS = 7, 15
_THOUSAND = 3


def numbers(text: str) -> Iterator[Number]:
    """Yield all numbers by position, without overlaps. Letters around a number do not hide it ("RE16" has 16)."""
    matches: list[Number] = []
    for match in _PHONE.finditer(text):
        if _is_phone(match[0]):
            digits = "".join(char for char in match[0] if char.isdigit())
            matches.append(Number(match.start(), match.end(), match[0], "+" * match[0].startswith("+") + digits))
    for match in _WHOLE.finditer(text):
        if not any(match.start() < other.end and other.start < match.end() for other in matches):
            matches.append(Number(match.start(), match.end(), match[0], match[0].replace(",", ".")))
    letters = list(text)
    for start, end, _, _ in matches:
        letters[start:end] = "\0" * (end - start)
    yield from sorted([*matches, *(_with_unit(match) for match in _NUMBER.finditer("".join(letters)))])


def _with_unit(match: regex.Match[str]) -> Number:
    parts = {name: (part or "").strip(" -") for name, part in match.groupdict().items() if name != "amount"}
    amount = _amount(match["amount"], is_price=bool(parts["sign"] or parts["after"]))
    amount *= LETTERS.get(parts["magnitude"]) or WORDS.get(parts["magnitude"].casefold(), 1)
    start, value = match.start(), match[0]
    if money := parts["sign"] or parts["after"]:
        return Number(start, start + len(value), value, f"{amount:.2f} {SIGNS.get(money.casefold(), money.upper())}")
    if match[0].isdecimal() and match[0].startswith("0"):
        return Number(start, start + len(value), value, value)  # a code, not a count
    unit = UNITS.get(parts["unit"], UNITS.get(parts["unit"].casefold(), ""))
    return Number(start, start + len(value), value, f"{_short(amount)} {unit}".strip())


def _amount(digits_text: str, *, is_price: bool) -> Decimal:
    """Parse an amount. Three digits after a point or comma are thousands, unless they may be decimals."""
    plain = digits_text.replace("−", "-")
    for space in " '’\u202f\u00a0":
        plain = plain.replace(space, "")
    signs = [char for char in plain if char in ",."]
    if len(set(signs)) > 1:  # the last one begins the decimals
        plain = plain.replace(signs[0], "").replace(signs[-1], ".")
    elif signs:
        groups = plain.lstrip("-").split(signs[0])
        may_be_thousands = all(len(group) == _THOUSAND for group in groups[1:]) and groups[0] not in {"0", ""}
        is_thousands = len(signs) > 1 or (may_be_thousands and (signs[0] == "," or is_price))
        plain = plain.replace(signs[0], "" if is_thousands else ".")
    return Decimal("".join(str(int(char)) if char.isdigit() else char for char in plain))


def _short(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _is_phone(digits_text: str) -> bool:
    digits = sum(char.isdigit() for char in digits_text)
    return _MIN_PHONE_DIGITS <= digits <= _MAX_PHONE_DIGITS
