"""The errors of media files, and of the programs that process them.

Every class has a stable `code`.

MediaError
├── NotMedia             no audio, video or picture at all
│   └── EmptyFile
├── UnsupportedInput     a format that is never opened, such as a playlist
├── TruncatedInput       the file ends before its header says
├── CorruptInput         the decoder gave up
├── InputTooLarge        over a limit: bytes, pixels, streams, seconds
├── NoSuchStream         the job needs audio or video that the file lacks
├── InvalidOutput        an output description that cannot be fulfilled
├── OutputTooLarge
├── OutputIncomplete     the program reported success, but its output is incomplete
├── LimitReached         CPU time or memory
├── TookTooLong
├── Stalled
├── DiskFull             also an Outage: jobs wait until there is room
├── MediaStopped         our side stopped the work
├── FfmpegFailed         any other unsuccessful end
├── FfmpegCrashed        a signal killed it
└── FfmpegMissing
    └── FfmpegUnfit      ffmpeg is installed, but lacks features that media tasks need
"""

from __future__ import annotations

from callsheet.kernel import errors
from callsheet.kernel.errors import CallsheetError


class MediaError(CallsheetError):
    """Root of the error tree. `retryable`: the same work may succeed later, or on another machine."""

    code = "media_error"
    retryable = False

    def retry_after(self, attempt: int) -> bool:
        """Whether to retry after attempt number `attempt`; the first is 1."""
        return self.retryable and attempt > 0


class NotMedia(MediaError):
    """The file holds no audio, no video and no picture."""

    code = "not_media"


class EmptyFile(NotMedia):
    """The file is empty: zero bytes."""

    code = "empty_file"


class UnsupportedInput(MediaError):
    """A list of files or addresses, or a format outside the allow-list."""

    code = "unsupported_input"


class TruncatedInput(MediaError):
    """The file is shorter than its header declares. Fetch the file again."""

    code = "truncated_input"


class CorruptInput(MediaError):
    """The file cannot be decoded."""

    code = "corrupt_input"


class InputTooLarge(MediaError):
    """The file exceeds a limit in bytes, pixels, streams or seconds."""

    code = "input_too_large"


class NoSuchStream(MediaError):
    """The file lacks the audio or video that an output needs."""

    code = "no_such_stream"


class InvalidOutput(MediaError):
    """The described output cannot be made; the message names the field."""

    code = "invalid_output"


class OutputTooLarge(MediaError):
    """The output exceeded its limit, so its production stopped."""

    code = "output_too_large"


class OutputIncomplete(MediaError):
    """The program ended successfully, but its output does not match the request."""

    code = "output_incomplete"


class LimitReached(MediaError):
    """The work exceeded its CPU time or memory, and would exceed it again."""

    code = "media_limit"


class TookTooLong(MediaError):
    """The work exceeded its wall-clock limit; a less busy machine may be fast enough."""

    code = "media_timeout"
    retryable = True


class Stalled(MediaError):
    """The program made no progress for the whole stall limit."""

    code = "media_stalled"
    retryable = True


class DiskFull(MediaError, errors.DiskFull):
    """The disk has too little free space."""

    code = "disk_full"
    retryable = True


class MediaStopped(MediaError):
    """The caller stopped the work; the program's later report does not count."""

    code = "media_stopped"
    retryable = True


class FfmpegFailed(MediaError):
    """ffmpeg failed with an error that no other class covers."""

    code = "ffmpeg_failed"


class FfmpegCrashed(MediaError):
    """A signal killed ffmpeg. A first crash may be chance, a second crash is caused by the file."""

    code = "ffmpeg_crashed"
    retryable = True

    def retry_after(self, attempt: int) -> bool:
        """Retry once: return whether `attempt` is 1."""
        return attempt == 1


class FfmpegMissing(MediaError):
    """No usable ffmpeg is installed on this machine."""

    code = "ffmpeg_missing"
    public = (
        "this worker has no ffmpeg that it can use; its operator may set CALLSHEET_FFMPEG to one, and finds out more "
        "with `callsheet doctor`"
    )


class FfmpegUnfit(FfmpegMissing):
    """ffmpeg is installed, but lacks features that media tasks need; the message names them."""

    code = "ffmpeg_unfit"
