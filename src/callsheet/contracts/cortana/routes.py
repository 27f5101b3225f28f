"""Combines the contract's routers into one."""

from __future__ import annotations

from fastapi import APIRouter

from . import clipping, pipeline_jobs, videos, watching

router = APIRouter()
for part in (videos.router, watching.router, watching.search_router, clipping.router, pipeline_jobs.router):
    router.include_router(part)
