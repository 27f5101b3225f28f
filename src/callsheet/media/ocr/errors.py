"""What can go wrong while text is read. Each has a stable `code` and says what to do next.

MediaError
└── OcrError
    ├── InvalidReading      options that cannot be right
    ├── LanguageMissing     a language whose data is not installed
    ├── EngineMissing       an engine whose package is not installed, or that does not start
    ├── NotAPicture         bytes that are no picture which can be read
    └── OcrCrashed          the engine died while it read a frame
TookTooLong and InputTooLarge of `media.errors` are raised too.
"""

from __future__ import annotations

from callsheet.media.errors import MediaError


class OcrError(MediaError):
    """Root of this tree."""

    code = "ocr_error"


class InvalidReading(OcrError):
    """An option is out of its range; the message names it."""

    code = "invalid_reading"


class LanguageMissing(OcrError):
    """No data for a language; the message names what is installed and how to get more."""

    code = "ocr_language_missing"


class EngineMissing(OcrError):
    """The engine cannot be used here; the message says what to install."""

    code = "ocr_engine_missing"


class NotAPicture(OcrError):
    """A frame is no picture, or a broken one; sample the video again."""

    code = "not_a_picture"


class OcrCrashed(OcrError):
    """The engine died of a signal, or left. Once may be chance; twice is the frame."""

    code = "ocr_crashed"
    retryable = True

    def retry_after(self, attempt: int) -> bool:
        """After the first attempt only."""
        return attempt == 1
