"""What can be wrong with a script, or with this machine when a video is to be made of it. Each has a stable `code`.

MediaError
└── ComposeError
    ├── InvalidScript        the Markdown is not a script; the message names the line
    │   └── ScriptTooLarge
    ├── PictureRefused       a picture that is none, is too large, or lies where it may not
    ├── MissingGlyphs        no font here can draw some characters
    ├── ShapingMissing       this Pillow cannot set the script of some characters
    ├── UnknownLanguage      no voice speaks it
    ├── ScriptNotWritten     the model's answer is no script
    ├── InvalidStep          what was kept of a step names a file outside of its folder
    └── ChildFailed          a process of ours died
"""

from __future__ import annotations

from callsheet.media.errors import MediaError


class ComposeError(MediaError):
    """Root of this tree."""

    code = "compose_error"


class InvalidScript(ComposeError):
    """The Markdown is not a script that a video can be made of."""

    code = "invalid_script"


class ScriptTooLarge(InvalidScript):
    """The script is over a limit in bytes, scenes or characters."""

    code = "script_too_large"


class PictureRefused(ComposeError):
    """A picture cannot be used; the message says which and why."""

    code = "picture_refused"


class MissingGlyphs(ComposeError):
    """No font of this machine has some characters; the message says what to install."""

    code = "missing_glyphs"


class ShapingMissing(ComposeError):
    """The letters of a script have to be joined, and this Pillow cannot."""

    code = "shaping_missing"


class UnknownLanguage(ComposeError):
    """No voice speaks the language that was asked for."""

    code = "unknown_language"


class ScriptNotWritten(ComposeError):
    """The model did not answer with a script; another try may."""

    code = "script_not_written"
    retryable = True


class InvalidStep(ComposeError):
    """What was kept of a step names a file that is not a plain one of the job's own folder."""

    code = "invalid_step"


class ChildFailed(ComposeError):
    """A process that draws or speaks died, or did not say what it made."""

    code = "compose_child_failed"
    retryable = True
