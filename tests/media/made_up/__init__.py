"""Made-up videos whose on-screen text is known: `made_up(name, folder)`, made once per folder, drawn and encoded here.

`ALL` are ordinary videos, one per kind of text; `CAPTIONS_40` has forty states of text in a minute; `ODD` lists files
with one anomaly each. In tests: the fixture `video`, which keeps them for the session.
"""

from __future__ import annotations

from .films import ALL, CAPTIONS_40
from .making import made_up
from .odd import ODD
from .records import MadeUp, Truth

__all__ = ["ALL", "CAPTIONS_40", "ODD", "MadeUp", "Truth", "made_up"]
