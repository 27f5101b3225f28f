"""Errors of video scripts, and of machines without the fonts, voices or memory for a video.

Every class has a stable `code`.

MediaError
└── ComposeError
    ├── InvalidScript        the Markdown is not a script; the message names the line
    │   └── ScriptTooLarge
    ├── PictureRefused       a file that is no picture, too large, or in a forbidden place
    ├── MissingGlyphs        no installed font can draw some characters
    ├── ShapingMissing       this Pillow cannot shape the script of some characters
    ├── UnknownLanguage      no voice speaks it
    ├── ScriptNotWritten     the model's answer is no script
    ├── InvalidStep          a step's stored result names a file outside of its folder
    └── ChildFailed          one of our child processes died
"""

from __future__ import annotations

from callsheet.media.errors import MediaError


class ComposeError(MediaError):
    """Root of the error tree."""

    code = "compose_error"


class InvalidScript(ComposeError):
    """The Markdown is no valid script."""

    code = "invalid_script"


class ScriptTooLarge(InvalidScript):
    """The script exceeds a limit in bytes, scenes or characters."""

    code = "script_too_large"


class PictureRefused(ComposeError):
    """A picture is unusable; the message names the picture and the reason."""

    code = "picture_refused"


class MissingGlyphs(ComposeError):
    """No installed font has some characters; the message names packages to install."""

    code = "missing_glyphs"


class ShapingMissing(ComposeError):
    """The script needs joined letters, which this Pillow cannot draw."""

    code = "shaping_missing"


class UnknownLanguage(ComposeError):
    """No voice speaks the requested language."""

    code = "unknown_language"


class ScriptNotWritten(ComposeError):
    """The model's answer is no script; another try may succeed."""

    code = "script_not_written"
    retryable = True


class InvalidStep(ComposeError):
    """A step's stored result names a file outside of the job's own folder."""

    code = "invalid_step"


class ChildFailed(ComposeError):
    """A process that draws or speaks died, or left its answer out."""

    code = "compose_child_failed"
    retryable = True
