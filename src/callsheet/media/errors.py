"""What can go wrong with a media file, or with a program that works on one. Each has a stable `code`.

MediaError
├── NotMedia             no audio, video or picture at all
│   └── EmptyFile
├── UnsupportedInput     something that is never opened, such as a playlist
├── TruncatedInput       the file ends before its own header says
├── CorruptInput         the decoder gave up
├── InputTooLarge        over a limit: bytes, pixels, streams, seconds
├── NoSuchStream         audio was asked for, and there is none
├── InvalidOutput        an output that nobody can make as it is described
├── OutputTooLarge
├── OutputIncomplete     the program said yes, but what it wrote is not whole
├── LimitReached         CPU time or memory
├── TookTooLong
├── Stalled
├── DiskFull             also an Outage: jobs wait until there is room
├── MediaStopped         our side stopped the work
├── FfmpegFailed         any other end that is not success
├── FfmpegCrashed        it died of a signal
└── FfmpegMissing
    └── FfmpegUnfit      there is one, and it lacks what media tasks need
"""

from __future__ import annotations

from callsheet.kernel import errors
from callsheet.kernel.errors import CallsheetError


class MediaError(CallsheetError):
    """Root of this tree. `retryable`: the same work may succeed at another time, or on another machine."""

    code = "media_error"
    retryable = False

    def retry_after(self, attempt: int) -> bool:
        """Whether another attempt is worth it after this one; 1 is the first."""
        return self.retryable and attempt > 0


class NotMedia(MediaError):
    """The file holds no audio, no video and no picture."""

    code = "not_media"


class EmptyFile(NotMedia):
    """The file has no bytes."""

    code = "empty_file"


class UnsupportedInput(MediaError):
    """A list of other files or addresses, or a form that is not on the list."""

    code = "unsupported_input"


class TruncatedInput(MediaError):
    """The file ends before its own structure does; fetch it again."""

    code = "truncated_input"


class CorruptInput(MediaError):
    """The file cannot be decoded."""

    code = "corrupt_input"


class InputTooLarge(MediaError):
    """The file is over a limit, in bytes, pixels, streams or seconds."""

    code = "input_too_large"


class NoSuchStream(MediaError):
    """The file lacks the audio or video that an output needs."""

    code = "no_such_stream"


class InvalidOutput(MediaError):
    """An output as described cannot be made; the message names the field."""

    code = "invalid_output"


class OutputTooLarge(MediaError):
    """The output grew over its limit and was stopped."""

    code = "output_too_large"


class OutputIncomplete(MediaError):
    """The program ended well, but its output is not what was asked for."""

    code = "output_incomplete"


class LimitReached(MediaError):
    """The work needs more CPU time or memory than it may have; it would again."""

    code = "media_limit"


class TookTooLong(MediaError):
    """The wall-clock limit was reached; on a quiet machine it may not be."""

    code = "media_timeout"
    retryable = True


class Stalled(MediaError):
    """Nothing moved for as long as it may."""

    code = "media_stalled"
    retryable = True


class DiskFull(MediaError, errors.DiskFull):
    """There is too little room on the disk."""

    code = "disk_full"
    retryable = True


class MediaStopped(MediaError):
    """The caller asked for the end; whatever the program said then is not believed."""

    code = "media_stopped"
    retryable = True


class FfmpegFailed(MediaError):
    """ffmpeg ended with an error that no other class here names."""

    code = "ffmpeg_failed"


class FfmpegCrashed(MediaError):
    """ffmpeg died of a signal. Once may be chance; twice is the file."""

    code = "ffmpeg_crashed"
    retryable = True

    def retry_after(self, attempt: int) -> bool:
        """After the first attempt only."""
        return attempt == 1


class FfmpegMissing(MediaError):
    """No ffmpeg is installed, or it does not run."""

    code = "ffmpeg_missing"
    public = (
        "this worker has no ffmpeg that it can use; its operator may set CALLSHEET_FFMPEG to one, and finds out more "
        "with `callsheet doctor`"
    )


class FfmpegUnfit(FfmpegMissing):
    """There is an ffmpeg, and it lacks what media tasks need; the message names it."""

    code = "ffmpeg_unfit"
