"""Convert language names of OCR engines (ISO 639-3, sometimes with a script) to those of the web (BCP-47)."""

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
    """Return the BCP-47 tag ("eng" is "en", "chi_sim" is "zh-Hans"), or None for unknown languages."""
    if not language:
        return None
    word = language.strip().lower()
    if word in _ENGINE_WORDS:
        return _ENGINE_WORDS[word]
    try:
        language_object = langcodes.Language.get(word.replace("_", "-"))
    except LanguageTagError:
        return None
    return (
        language_object.to_tag()
        if language_object.is_valid() and language_object.language not in {None, "und", "mis", "mul", "zxx"}
        else None
    )
