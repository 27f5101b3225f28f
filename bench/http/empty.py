"""The lower bound of `POST /v1/jobs`: the same server, middleware, key check and validation, then a constant answer."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from callsheet.api.new_jobs import CreateJob
from callsheet.contracts.redis_gateway.models import Receipt, receipt
from callsheet.http.json_bodies import read
from callsheet.http.parameters import Writer

JOB_ID = "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"
ANSWER = receipt(JOB_ID, "chat", 86_400)
HEADERS = {"Location": f"/v1/jobs/{JOB_ID}"}
router = APIRouter()


@router.post("/v1/jobs", status_code=202, response_model=Receipt)
async def create_nothing(request: Request, who: Writer) -> Response:  # noqa: ARG001 - the key is checked by asking for it
    await read(request, CreateJob)
    return Response(ANSWER, 202, HEADERS, media_type="application/json")
