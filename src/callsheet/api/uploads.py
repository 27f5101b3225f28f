"""`/v1/uploads`: begin, read, complete or drop an upload of a tenant's file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from callsheet.http import problems
from callsheet.http.auth import check
from callsheet.http.json_bodies import JsonAnswer, request_body
from callsheet.http.json_bodies import read as read_body
from callsheet.http.object_access import objects_of
from callsheet.http.problems import Problem
from callsheet.http.state import state_of
from callsheet.http.upload_records import complete_upload, drop_upload, find_upload, open_upload, upload_body
from callsheet.kernel.errors import DocumentConflict

PROBLEMS = ("unauthorized", "forbidden", "too_many_requests", "store_unavailable", "not_found", "objects_forbidden")
UploadId = Annotated[str, Path(examples=["0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"])]
router = APIRouter(prefix="/v1/uploads", tags=["uploads"])
MOST_BYTES = 1024**4


class NewUpload(BaseModel):
    """A file to upload."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "holiday.mp4", "size": 5_000_000_000, "content_type": "video/mp4"}]},
    )

    name: Annotated[str, Field(min_length=1, max_length=255)]
    size: Annotated[int, Field(ge=0, le=MOST_BYTES, strict=True)]
    content_type: Annotated[str | None, Field(default=None, max_length=255)]


class PartToSend(BaseModel):
    """The request that sends one part: `size` bytes of the file from `offset`, with these headers."""

    number: int
    offset: int
    size: int
    method: str
    url: str
    headers: dict[str, str]
    expires_at: int


class UploadBody(BaseModel):
    """An upload with its progress. `todo` lists the next parts to send, in any order and concurrently."""

    upload_id: str
    key: str = Field(description="Where the object will be; jobs name it so.")
    name: str
    size: int
    content_type: str
    status: str = Field(description="`open` or `done`.")
    received: int = Field(description="Bytes of all parts that arrived whole.")
    part_size: int
    part_count: int
    todo: list[PartToSend]
    expires_at: int


@router.post(
    "",
    status_code=201,
    summary="Begin an upload",
    response_model=UploadBody,
    openapi_extra=request_body(NewUpload),
    responses=problems.responses(
        *PROBLEMS, "validation_failed", "invalid_key", "body_too_large", "objects_unavailable", "quota_exceeded"
    ),
)
async def begin(request: Request) -> JsonAnswer:
    """Start an upload. The response lists the first parts to send."""
    who = await check(request, "jobs:write")
    state = state_of(request)
    return JsonAnswer(
        await upload_body(objects_of(state), await open_upload(state, who, await read_body(request, NewUpload))), 201
    )


@router.get(
    "/{upload_id}",
    summary="What is left to send",
    response_model=UploadBody,
    responses=problems.responses(*PROBLEMS, "upload_not_found", "objects_unavailable"),
)
async def read(request: Request, upload_id: UploadId) -> JsonAnswer:
    """Read the upload's missing parts with fresh URLs, for example after a broken connection."""
    record, _, objects = await find_upload(request, upload_id)
    return JsonAnswer(await upload_body(objects, record))


@router.post(
    "/{upload_id}/complete",
    summary="Complete an upload",
    response_model=UploadBody,
    responses=problems.responses(
        *PROBLEMS, "upload_not_found", "upload_incomplete", "upload_busy", "objects_unavailable"
    ),
)
async def complete(request: Request, upload_id: UploadId) -> JsonAnswer:
    """Assemble the object from its parts. Repeated requests get the same response."""
    return JsonAnswer(await upload_body(objects_of(state_of(request)), await complete_upload(request, upload_id)))


@router.delete(
    "/{upload_id}",
    status_code=204,
    summary="Drop an upload",
    response_class=Response,
    responses=problems.responses(*PROBLEMS, "upload_not_found", "refused", "objects_unavailable"),
)
async def drop(request: Request, upload_id: UploadId) -> Response:
    """Drop an open upload and delete its parts. A complete upload is kept, since a job may need its object."""
    record, version, objects = await find_upload(request, upload_id)
    if record.status != "open":
        raise Problem("refused", "this upload is complete")
    try:
        await drop_upload(state_of(request).engine.store, objects, record, version)
    except DocumentConflict:
        raise Problem("refused", "this upload was completed or dropped at the same moment") from None
    return Response(status_code=204)
