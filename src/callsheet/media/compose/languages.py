"""Guess a text's language from its letters, in the codes of espeak-ng."""

from __future__ import annotations

import unicodedata
from collections import Counter

OF_SCRIPT = {
    "ARABIC": "ar",
    "ARMENIAN": "hy",
    "BENGALI": "bn",
    "CJK": "cmn",
    "CYRILLIC": "ru",
    "DEVANAGARI": "hi",
    "ETHIOPIC": "am",
    "GEORGIAN": "ka",
    "GREEK": "el",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "HANGUL": "ko",
    "HEBREW": "he",
    "HIRAGANA": "ja",
    "KANNADA": "kn",
    "KATAKANA": "ja",
    "LATIN": "en",
    "MALAYALAM": "ml",
    "MYANMAR": "my",
    "SINHALA": "si",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
}
# common codes, and espeak-ng's names for them
OTHER_NAMES = {"zh": "cmn", "zh-cn": "cmn", "zh-hans": "cmn", "zh-tw": "cmn", "zh-hant": "cmn", "nb": "nb", "iw": "he"}
OTHER_NAMES |= {"en-uk": "en-gb", "pt-pt": "pt", "es-mx": "es-419", "zh-hk": "yue"}


def language_of(text: str, requested: str = "") -> str:
    """Return the requested language, or a guess from the letters: Latin letters count as English."""
    if requested:
        return OTHER_NAMES.get(requested, requested)
    scripts = Counter(unicodedata.name(one, "").partition(" ")[0] for one in text if one.isalpha())
    if scripts["HIRAGANA"] or scripts["KATAKANA"]:
        return "ja"
    for script, _ in scripts.most_common():
        if script in OF_SCRIPT:
            return OF_SCRIPT[script]
    return "en"
