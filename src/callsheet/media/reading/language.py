"""Languages as engines name them (ISO 639-3, sometimes with a script) and as the web does (BCP-47)."""

from __future__ import annotations

from functools import lru_cache

import langcodes
from langcodes.tag_parser import LanguageTagError

_ENGINE_WORDS = {
    "chi_sim": "zh-Hans",
    "chi_sim_vert": "zh-Hans",
    "chi_tra": "zh-Hant",
    "chi_tra_vert": "zh-Hant",
    "jpn_vert": "ja",
    "kor_vert": "ko",
    "aze_cyrl": "az-Cyrl",
    "srp_latn": "sr-Latn",
    "uzb_cyrl": "uz-Cyrl",
    "deu_latf": "de-Latf",
    "deu_frak": "de-Latf",
    "frk": "de-Latf",  # Tesseract's word for Fraktur; in ISO 639-3 it is Frankish
    "ita_old": "it",
    "spa_old": "es",
    "kat_old": "ka",
    "equ": None,
    "osd": None,
}


@lru_cache(maxsize=1024)
def tag(language: str | None) -> str | None:
    """The BCP-47 tag ("eng" is "en", "chi_sim" is "zh-Hans"); None for what is no language."""
    if not language:
        return None
    word = language.strip().lower()
    if word in _ENGINE_WORDS:
        return _ENGINE_WORDS[word]
    try:
        found = langcodes.Language.get(word.replace("_", "-"))
    except LanguageTagError:
        return None
    return found.to_tag() if found.is_valid() and found.language not in {None, "und", "mis", "mul", "zxx"} else None
