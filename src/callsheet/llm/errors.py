"""What can go wrong on the way to a model and back. `retryable` says whether another attempt may help.

LlmError
├── NotConfigured      a setting is missing or wrong
├── Unavailable        the server broke over this request, which may pass
│   └── Away           the server says that it cannot serve now: an Outage, which jobs wait for
│       └── Unreachable    nobody answers there
├── CutOff             an answer broke off in the middle
├── RequestRefused     the server said no, with a reason
├── Garbled            what came is not what such a server sends
├── AnswerTooLong
├── PlanUnreadable
├── ResultTooLarge
├── NoPassages         a collection that holds nothing
├── OtherModel         vectors of two models cannot be compared
├── UnknownTool
├── ToolFailed         the tool itself raised
└── ToolStopped        the tool went over one of its limits
"""

from __future__ import annotations

from callsheet.kernel.errors import CallsheetError, Outage


class LlmError(CallsheetError):
    """Root of this tree. `after_s`: how long the other side asked to wait."""

    code = "llm_error"
    retryable = False

    def __init__(self, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class NotConfigured(LlmError):
    """A setting is missing or cannot be right."""

    code = "llm_not_configured"


class Unavailable(LlmError):
    """The server cannot answer now."""

    code = "llm_unavailable"
    retryable = True


class Away(Unavailable, Outage):
    """The server, or what stands before it, says that it cannot serve anybody now."""

    waits_for = "the model server"


class Unreachable(Away):
    """The server cannot be reached."""


class CutOff(LlmError):
    """The answer broke off before its end."""

    code = "llm_cut_off"
    retryable = True


class RequestRefused(LlmError):
    """The server refused the request; the same request would be refused again."""

    code = "llm_refused"


class Garbled(LlmError):
    """The answer is not in the form that an OpenAI-compatible server gives it."""

    code = "llm_garbled"


class AnswerTooLong(LlmError):
    """The model does not come to an end."""

    code = "llm_answer_too_long"


class PlanUnreadable(LlmError):
    """The model was asked twice for steps as JSON, and gave none."""

    code = "plan_unreadable"


class ResultTooLarge(LlmError):
    """A result that the engine would refuse."""

    code = "result_too_large"


class NoPassages(LlmError):
    """There is nothing in a collection to answer from."""

    code = "no_passages"


class OtherModel(LlmError):
    """A collection was embedded by another model."""

    code = "other_model"


class UnknownTool(LlmError):
    """No tool of this name is on the list."""

    code = "unknown_tool"


class ToolFailed(LlmError):
    """The tool raised, or its process died."""

    code = "tool_failed"
    retryable = True


class ToolStopped(LlmError):
    """The tool went over a limit; it would again."""

    code = "tool_limit"
