"""The language codes of Tesseract. Workers report which of these languages are installed."""

from __future__ import annotations

from .errors import EngineMissing
from .tessdata import languages

_ALL = (
    "afr amh ara asm aze aze_cyrl bel ben bod bos bre bul cat ceb ces chi_sim chi_sim_vert chi_tra chi_tra_vert chr "
    "cos cym dan dan_frak deu deu_frak deu_latf div dzo ell eng enm epo est eus fao fas fil fin fra frk frm fry gla "
    "gle glg grc guj hat heb hin hrv hun hye iku ind isl ita ita_old jav jpn jpn_vert kan kat kat_old kaz khm kir "
    "kmr kor kor_vert kur lao lat lav lit ltz mal mar mkd mlt mon mri msa mya nep nld nor oci ori pan pol por pus "
    "que ron rus san sin slk slk_frak slv snd spa spa_old sqi srp srp_latn sun swa swe syr tam tat tel tgk tha tir "
    "ton tur uig ukr urd uzb uzb_cyrl vie yid yor "
)
CODES = frozenset(_ALL.split())


def is_known(code: str) -> bool:
    """Whether a language code belongs to Tesseract, or to data on this machine."""
    if code in CODES:
        return True
    try:
        return code in languages()
    except EngineMissing:
        return False
