"""Combines the contract's routers into one."""

from __future__ import annotations

from fastapi import APIRouter

from . import clipping, pipeline_jobs, searching, videos, watching

router = APIRouter()
for part in (videos, watching, searching, clipping, pipeline_jobs):
    router.include_router(part.router)
