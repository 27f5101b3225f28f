"""The units of numbers, and their spellings."""

from __future__ import annotations

from collections.abc import Iterator

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
_MEASURES = (
    "% percent prozent pct",
    "‰ permille",
    "km kilometers kilometres",
    "m meters metres meter metre",
    "cm centimeters",
    "mm millimeters",
    "mi miles mile",
    "ft feet foot",
    "kg kilograms kilos kilo",
    "g grams gram",
    "mg",
    "t tonnes tons",
    "lb lbs pounds",
    "oz ounces",
    "l L liters litres liter litre",
    "ml mL",
    "s sec secs second seconds",
    "ms milliseconds",
    "min mins minute minutes",
    "h hr hrs hour hours",
    "days day",
    "weeks week",
    "months month",
    "years year",
    "°C ℃",
    "°F ℉",
    "°",
    "bit bits",
    "B bytes byte",
    "kB KB kilobytes",
    "MB megabytes",
    "GB gigabytes",
    "TB terabytes",
    "KiB",
    "MiB",
    "GiB",
    "kbit/s kbps",
    "Mbit/s Mbps",
    "Gbit/s Gbps",
    "fps",
    "px pixels",
    "dpi",
    "Hz",
    "kHz",
    "MHz",
    "GHz",
    "V volts",
    "A amps",
    "W watts",
    "kW",
    "MW",
    "kWh",
    "mAh",
    "dB",
    "km/h kmh kph",
    "mph",
    "x ×",
    "views view",
    "likes like",
    "followers follower",
    "subscribers subscriber",
    "comments comment",
    "people",
    "users user",
    "items item",
    "times",
    "points",
    "stars",
)


def _units() -> Iterator[tuple[str, str]]:
    for measure in _MEASURES:
        short, *others = measure.split()
        yield from ((name, short) for name in (short, *others))


UNITS = dict(_units())
