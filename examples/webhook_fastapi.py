"""Receive callbacks with FastAPI: `WEBHOOK_SECRET=whsec_… uvicorn webhook_fastapi:app`."""  # noqa: INP001 - a program on its own

from __future__ import annotations

import os

from fastapi import FastAPI, HTTPException, Request

from callsheet.receiver import NotVerified, Receiver

app = FastAPI()
receiver = Receiver(os.environ["WEBHOOK_SECRET"].split())  # two, with a space between, while they change


@app.post("/hook", status_code=204)
async def hook(request: Request) -> None:
    """Answer soon: the sender waits 15 seconds. Longer work belongs in a job of its own."""
    try:
        event = receiver.verify(request.headers, await request.body())
    except NotVerified as error:
        raise HTTPException(401, str(error)) from None
    with receiver.once(event.event_id) as first:
        if first:
            print(event.event_id, event.body)  # noqa: T201 - what this receiver does
