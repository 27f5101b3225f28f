"""The built-in tasks: language models, transcoding, and with the extra `media` compose and video search."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from callsheet.contracts.euterpe.tasks import MAX_SOURCE_BYTES
from callsheet.contracts.redis_gateway.tasks import add_tasks as add_gateway

from .transcoding import add_transcoding

if TYPE_CHECKING:
    from callsheet.net.guard import Rules

    from .application import Callsheet

log = logging.getLogger("callsheet.app")


def add_builtin(
    app: Callsheet,
    rules: Rules | None = None,
    *,
    storage: Rules | None = None,
    max_source_bytes: int = MAX_SOURCE_BYTES,
) -> Callsheet:
    """Declare the built-in tasks, except tasks that the app declared already; `add_transcoding` explains the rules."""
    if "chat" not in app.definitions:
        add_gateway(app)
    if "transcode" not in app.definitions:
        add_transcoding(app, rules, storage=storage, max_source_bytes=max_source_bytes)
    try:
        from callsheet.contracts.aura.tasks import add_tasks as add_compose  # noqa: PLC0415 - an extra

        from .video import add_video  # noqa: PLC0415
    except ModuleNotFoundError as error:
        log.info("no media tasks (%s is missing): pip install 'callsheet[media]'", error.name)
        return app
    if "compose" not in app.definitions:
        add_compose(app)
    if "video.transcode" not in app.definitions:
        add_video(app)
    return app
