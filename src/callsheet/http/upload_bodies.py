"""Request and response bodies of `/v1/uploads`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

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
