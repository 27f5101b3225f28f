"""OCR errors.

Each has a stable `code` and says what to do next.

MediaError
└── OcrError
    ├── InvalidReading      invalid options
    ├── LanguageMissing     a language without installed data
    ├── EngineMissing       an engine whose package is not installed, or that does not start
    ├── NotAPicture         bytes that are no readable picture
    └── OcrCrashed          the engine died during a frame
TookTooLong and InputTooLarge of `media.errors` occur too.
"""

from __future__ import annotations

from callsheet.media.errors import MediaError


class OcrError(MediaError):
    """Root of the error tree."""

    code = "ocr_error"


class InvalidReading(OcrError):
    """An option is out of range; the message names it."""

    code = "invalid_reading"


class LanguageMissing(OcrError):
    """No installed data for a language; the message lists installed ones and how to get more."""

    code = "ocr_language_missing"


class EngineMissing(OcrError):
    """The engine is unusable on this machine; the message names the package to install."""

    code = "ocr_engine_missing"


class NotAPicture(OcrError):
    """A frame is no picture, or a broken one; sample the video again."""

    code = "not_a_picture"


class OcrCrashed(OcrError):
    """A signal killed the engine, or it exited. One crash may be chance; a second one is the frame's fault."""

    code = "ocr_crashed"
    retryable = True

    def retry_after(self, attempt: int) -> bool:
        """Whether this was the first attempt."""
        return attempt == 1
