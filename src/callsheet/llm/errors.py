"""Errors between a job and its model.

`retryable` says whether another attempt may help.

LlmError
├── NotConfigured      a setting is missing or wrong
├── Unavailable        the server failed on this request; the failure may pass
│   └── Away           the server reports that it is unavailable: an Outage, which jobs wait for
│       └── Unreachable    no connection to the server
├── CutOff             the answer broke off in the middle
├── RequestRefused     the server refused the request, with a reason
├── Garbled            the response has an unknown form
├── AnswerTooLong
├── PlanUnreadable
├── ResultTooLarge
├── NoPassages         the collection is empty
├── OtherModel         vectors of two models cannot be compared
├── UnknownTool
├── ToolFailed         the tool raised an exception
└── ToolStopped        the tool exceeded one of its limits
"""

from __future__ import annotations

from callsheet.kernel.errors import CallsheetError, Outage


class LlmError(CallsheetError):
    """Root of the error tree. `after_s` is the delay that the server asked for, in seconds."""

    code = "llm_error"
    retryable = False

    def __init__(self, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class NotConfigured(LlmError):
    """A setting is missing or invalid."""

    code = "llm_not_configured"


class Unavailable(LlmError):
    """The server failed on this request."""

    code = "llm_unavailable"
    retryable = True


class Away(Unavailable, Outage):
    """The model server or its proxy reports an outage for all clients."""

    waits_for = "the model server"


class Unreachable(Away):
    """No connection to the server was possible."""


class CutOff(LlmError):
    """The answer broke off before its end."""

    code = "llm_cut_off"
    retryable = True


class RequestRefused(LlmError):
    """The model server refused the request; retries would fail too."""

    code = "llm_refused"


class Garbled(LlmError):
    """The response does not have the form of an OpenAI-compatible server."""

    code = "llm_garbled"


class AnswerTooLong(LlmError):
    """The model's answer exceeds the character limit."""

    code = "llm_answer_too_long"


class PlanUnreadable(LlmError):
    """The model was asked twice for steps as JSON and returned none."""

    code = "plan_unreadable"


class ResultTooLarge(LlmError):
    """The result exceeds the engine's size limit."""

    code = "result_too_large"


class NoPassages(LlmError):
    """The collection holds no passages to answer from."""

    code = "no_passages"


class OtherModel(LlmError):
    """A different model embedded this collection."""

    code = "other_model"


class UnknownTool(LlmError):
    """No tool of this name is registered."""

    code = "unknown_tool"


class ToolFailed(LlmError):
    """The tool raised an exception, or its process died."""

    code = "tool_failed"
    retryable = True


class ToolStopped(LlmError):
    """The tool exceeded a limit; retries would exceed the limit too."""

    code = "tool_limit"
