"""What the routes of several resources share: callers by scope, path and query parameters, and usual problem codes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path
from pydantic import Field

from .auth import requires
from .keys import Principal

ALWAYS = ("unauthorized", "forbidden", "too_many_requests", "store_unavailable")
BODY = ("validation_failed", "unsupported_media_type", "body_too_large")
NO_NUL = r"^[^\x00]*$"  # PostgreSQL cannot store NUL in text
CURSOR = r"^[0-9]{1,18}$"
LATEST_MS = 253_402_300_799_999  # the end of the year 9999
Reader = Annotated[Principal, Depends(requires("jobs:read"))]
Writer = Annotated[Principal, Depends(requires("jobs:write"))]
Admin = Annotated[Principal, Depends(requires("admin"))]
JobId = Annotated[str, Path(description="The job's id.", examples=["0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"])]
Moment = Annotated[int, Field(description="Milliseconds since the epoch, by the store's clock.")]
