"""What is looked at before the first job, when somebody named an ffmpeg: a choice of theirs must not fail late."""

from __future__ import annotations

import logging
import os

from callsheet.media import binaries
from callsheet.media.errors import FfmpegMissing

from .failures import WrongInput

log = logging.getLogger("callsheet.cli")


def check_forced_ffmpeg() -> None:
    """Warn of known holes in the ffmpeg that CALLSHEET_FFMPEG names; raises WrongInput when it cannot serve."""
    if not os.environ.get(binaries.VARIABLE):
        return
    try:
        choice = binaries.choose()
    except FfmpegMissing as error:
        raise WrongInput(str(error)) from error
    if choice.danger:
        log.warning("%s=%s: %s", binaries.VARIABLE, choice.binary.path, choice.danger)
