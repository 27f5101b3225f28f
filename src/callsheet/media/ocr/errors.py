"""OCR errors.

Every error class has a stable `code`; its message advises a next step.

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
    """A reading option is out of range. The message names the option."""

    code = "invalid_reading"


class LanguageMissing(OcrError):
    """A language has no installed data. The message lists the installed languages and gives install commands."""

    code = "ocr_language_missing"


class EngineMissing(OcrError):
    """The engine is unusable on this machine; the message names the package to install."""

    code = "ocr_engine_missing"


class NotAPicture(OcrError):
    """A frame is no JPEG or PNG, or is damaged. Sample the video again."""

    code = "not_a_picture"


class OcrCrashed(OcrError):
    """A signal killed the engine, or it exited. A first crash may be chance, a second crash is caused by the frame."""

    code = "ocr_crashed"
    retryable = True

    def retry_after(self, attempt: int) -> bool:
        """Retry once: return whether `attempt` is 1."""
        return attempt == 1
