"""An app with the transcoding task, for workers that are programs of their own."""

from __future__ import annotations

from callsheet.app import Callsheet
from callsheet.app.transcoding import add_transcoding
from tests.outbox.sink import RULES

app = Callsheet()
add_transcoding(app, RULES)
