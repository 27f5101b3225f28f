"""Receive callbacks with Flask, several processes sharing what they have seen: `flask --app webhook_flask run`."""  # noqa: INP001 - alone

from __future__ import annotations

import os
import sqlite3

from flask import Flask, abort, request  # type: ignore[import-not-found, unused-ignore]

from callsheet.receiver import SQL, NotVerified, Receiver, SqlSeen

SEEN = os.environ.get("WEBHOOK_SEEN", "seen.db")
with sqlite3.connect(SEEN) as connection:
    connection.execute(SQL.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))

app = Flask(__name__)
receiver = Receiver(os.environ["WEBHOOK_SECRET"].split(), seen=SqlSeen(lambda: sqlite3.connect(SEEN)))


@app.post("/hook")  # type: ignore[untyped-decorator, unused-ignore]
def hook() -> tuple[str, int]:
    """A handler that raises answers with 500, and the event comes again."""
    try:
        event = receiver.verify(request.headers, request.get_data())
    except NotVerified as error:
        abort(401, str(error))
    with receiver.once(event.event_id) as first:
        if first:
            print(event.event_id, event.body)  # noqa: T201 - what this receiver does
    return "", 204
