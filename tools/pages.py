"""Renders the generated pages of `docs/reference`: settings, events, errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import click

from callsheet.contracts.aura.projection import TYPES
from callsheet.http.problems import STATUSES
from callsheet.kernel.contracts import CONTRACTS
from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.events import TERMINAL_EVENTS
from callsheet.kernel.job import Status
from callsheet.kernel.lifecycle import Lifecycle

SRC = Path(__file__).parents[1] / "src"
HEAD = "<!-- written by `make reference` from the code -->\n"

OTHERS = {
    "CALLSHEET_LLM_URL": "Base of an OpenAI-compatible API, for the tasks chat, plan and code.",
    "CALLSHEET_LLM_API_KEY": "Its key.",
    "CALLSHEET_LLM_MODEL": "The model, where a job names none.",
    "CALLSHEET_EMBED_URL": "The same for embeddings; that of the chat unless given.",
    "CALLSHEET_EMBED_API_KEY": "Its key; that of the chat unless given.",
    "CALLSHEET_EMBED_MODEL": "Its model; that of the chat unless given. Without a server, the folder of a local model.",
    "CALLSHEET_EMBED_SHA256": "The digest of the local model's files; one that is not pinned is not loaded.",
    "CALLSHEET_VECTORS_URL": "Where passages for the task rag are kept; the store's database unless given.",
    "CALLSHEET_KEYS": "The keyring of the vault as text, in place of a file.",
    "CALLSHEET_KMS": "Keys of the vault in a service: aws:alias/callsheet or vault:transit/callsheet.",
    "CALLSHEET_KEY_PEPPER": "Mixed into the hashes of API keys; all servers of a store need the same.",
    "CALLSHEET_FFMPEG": "The ffmpeg to use; unless given the newest safe one, the wheel's or the system's.",
    "CALLSHEET_BOX_LOG": "Set to anything: the kernel's log (type 1326) names each system call that the box refuses.",
    "CALLSHEET_FONTS": "Folders of fonts for compose that come before the system's.",
    "CALLSHEET_NO_VOICE": "Set to anything: compose works as if no voice were installed.",
    "CALLSHEET_MEDIA_ROOT": "Where live jobs have their temporary folders.",
    "CALLSHEET_OCR_ENGINE": "What reads frames: tesseract (unless given) or rapidocr.",
    "CALLSHEET_DEMO_EXIT": "`callsheet demo` ends when all is done.",
    "CALLSHEET_DEMO_HOME": "The folder of `callsheet demo`.",
    "POD_NAME": "What a worker is called; HOSTNAME, then an id that is new with each start, unless given.",
    "TESSDATA_PREFIX": "A folder with .traineddata files that comes before the others.",
    "S3_ENDPOINT": "Where the S3 is; AWS_ENDPOINT_URL is known, too. Amazon's unless given.",
    "S3_REGION": "Its region; or AWS_REGION, AWS_DEFAULT_REGION.",
    "S3_BUCKET": "The bucket where an s3:/// URL names none, or where, with S3_ACCESS_KEY_ID, there is no URL.",
    "S3_ACCESS_KEY_ID": "Who asks; or S3_ACCESS_KEY, AWS_ACCESS_KEY_ID.",
    "S3_SECRET_ACCESS_KEY": "The secret; or S3_SECRET_KEY, AWS_SECRET_ACCESS_KEY.",
    "S3_SESSION_TOKEN": "The token of temporary keys; or AWS_SESSION_TOKEN.",
}
EVENTS = {
    "queued": ("The job is in the store.", ""),
    "running": ("An attempt has begun.", ""),
    "stage": ("It has entered a stage; `step` names it.", ""),
    "progress": ("It has come so far; `progress` never falls.", "`message`"),
    "checkpoint": ("A step is done and its result kept; `step` names it.", ""),
    "log": ("A line that the task wrote.", "`level`, `message`, fields"),
    "warning": ("Something is not as it should be, and the work goes on.", "`message`"),
    "token": ("A piece of a model's answer.", "`text`"),
    "restart": ("A model's answer begins anew; forget the pieces before.", "`attempt`, `reason`"),
    "refreshed": ("The job got newer credentials.", ""),
    "retrying": ("The attempt failed and there will be another.", "`code`, `message`"),
    "released": ("The worker handed the job back, unharmed.", ""),
    "waiting": (
        "Something that it needs is away; the job is in line again, at no cost.",
        "`for`, `message`, `delay_ms`",
    ),
    "lease_lost": ("Its worker went silent; the job is in line again, or a dead letter.", "`code`, `message`"),
    "cancel_requested": ("Somebody wants it to stop; the worker is told.", "`reason`"),
    "requeued": ("An ended job was brought back by hand.", ""),
    "done": ("The end: it succeeded. The result is the job's.", ""),
    "error": ("The end: it failed for good, or its attempts are spent.", "`code`, `message`, `details`"),
    "canceled": ("The end: it was canceled.", "`reason`"),
}
LIVE = {
    "job-status": "queued, running, the entry of a stage, and each end before what came of it",
    "step-status": "a stage begins, a checkpoint is kept",
    "step-progress": "progress, at most each 500 ms; the last is never held back",
    "warning": "warning",
    "error": "an attempt that will be tried again",
    "job-completed": "done",
    "job-failed": "error",
    "job-cancelled": "canceled",
}


class Used(NamedTuple):
    """A setting and the commands with this setting."""

    flag: str
    default: str
    help_text: str
    commands: tuple[str, ...]


def settings_page(commands: Mapping[str, click.Command]) -> str:
    """Every environment variable."""
    rows = [
        f"| `{variable}` | `{used.flag}` | {used.default} | {used.help_text} | {_where(used.commands)} |"
        for variable, used in sorted(_used(commands).items())
    ]
    others = [f"| `{name}` | {help_text} |" for name, help_text in OTHERS.items()]
    return f"""# Settings

{HEAD}
A setting is a flag of the commands that use it, and an environment variable; the flag wins. Durations are `500ms`,
`30s`, `10m`, `2d`; a switch is on by `1`, `true`, `yes` or `on`; lists are `a,b`. Nothing is read from a file. What
each command takes is in [the command line](command-line.md).

| variable | flag | default | meaning | commands |
|---|---|---|---|---|
{_lines(rows)}
## Without a flag

Secrets, which others could see on a command line, and what belongs to a machine.

| variable | meaning |
|---|---|
{_lines(others)}"""


def _used(commands: Mapping[str, click.Command]) -> dict[str, Used]:
    by_variable: dict[str, Used] = {}
    for name, command in commands.items():
        for option in command.params:
            if not isinstance(option, click.Option) or not option.envvar:
                continue
            variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar
            default = f"`{option.default}`" if isinstance(option.default, str) else ""
            for variable in variables:
                entry = by_variable.get(variable, Used(option.opts[0], default, option.help or "", ()))
                by_variable[variable] = entry._replace(commands=(*entry.commands, name.removeprefix("callsheet ")))
    return by_variable


def _where(commands: Iterable[str], most: int = 5) -> str:
    names = list(commands)
    first_names = ", ".join(f"`{name}`" for name in names[:most])
    return f"{first_names} and {len(names) - most} more" if len(names) > most else first_names


def variables_in_code() -> set[str]:
    """The names of our environment variables, wherever they stand in the code."""
    variables: set[str] = set()
    for path in SRC.rglob("*.py"):
        variables |= set(re.findall(r"\b((?:CALLSHEET|S3)_[A-Z][A-Z0-9_]+[A-Z0-9])\b", path.read_text("utf-8")))
    return variables


def events_in_code() -> set[str]:
    """The types of events that the engine, its tasks and its contracts write."""
    event_types: set[str] = set()
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if name in {"NewEvent", "emit"} and node.args[0].value:
                    event_types.add(str(node.args[0].value))
    return event_types


def events_page() -> str:
    """Every type of event."""
    rows = [f"| `{name}` | {help_text} | {data} |" for name, (help_text, data) in EVENTS.items()]
    live = [f"| `{name}` | {LIVE[name]} |" for name in TYPES]
    words = [
        f"| `{name}` | {' | '.join(_word(contract, status) for status in Status)} |"
        for name, contract in sorted(CONTRACTS.items())
    ]
    statuses = " | ".join(f"`{status.value}`" for status in Status)
    ends = ", ".join(f"`{name}`" for name in EVENTS if name in TERMINAL_EVENTS)
    return f"""# Events

{HEAD}
An event is a fact about a job, written in the same transaction as what it tells of. A job's events are numbered from 1
without a gap. Each has `id` (`{{ms}}-{{seq}}`), `job_id`, `seq`, `type`, `ts` (milliseconds), `step`, `progress` and
`data`. They are read by `job.events()`, `GET /v1/jobs/{{job_id}}/events` and `callsheet watch`, from any of them on; a
job's last is one of {ends}. `ctx.emit(type, …)` of a task and a remote
worker's `event` add types of their own. A type that a move writes and any contract's word for a status (`succeeded`,
`failed`, `dlq`, …), also after a dot, are refused with `invalid_input`; `warning`, `token` and `restart` are free.

| type | meaning | `data` |
|---|---|---|
{_lines(rows)}
On a connection come two more, which are no facts and have no number: `hello`, the job as it is when the stream begins,
and `reset`, the same after an id that the job never had.

## Live jobs

`GET /api/jobs/{{job_id}}/events` tells the same facts in the words of [contract 004](../contracts/aura.md):

| type | tells of |
|---|---|
{_lines(live)}
## Webhooks

A job of [Euterpe](../contracts/euterpe.md) that asks for callbacks sends one for each move that its contract has a word
for: `type` is `{{kind}}.{{word}}`, such as `transcode.succeeded`. Fields and signature are in
[webhooks](../guides/webhooks.md).

## Statuses in the contracts' words

| contract | {statuses} |
|---|{"---|" * len(Status)}
{_lines(words)}"""


def _word(contract: Lifecycle, status: Status) -> str:
    word = contract.word(status, has_started=status is not Status.QUEUED)
    return "–" if word is None else f"`{word}`"


PUBLIC = (
    "callsheet",
    "callsheet.errors",
    "callsheet.tasks",
    "callsheet.testing",
    "callsheet.client",
    "callsheet.receiver",
    "callsheet.engine",
    "callsheet.engine.dead_letters",
    "callsheet.worker",
    "callsheet.worker.remote",
    "callsheet.objects",
    "callsheet.vault",
    "callsheet.llm",
    "callsheet.media.compose",
)


def python_page() -> str:
    """Every public name of the library, by its module."""
    parts = [_public(import_module(name)) for name in PUBLIC]
    return f"""# Python

{HEAD}
These modules, and the names that each of them lists in `__all__`, are the library's public face: the guides use nothing
else, and a name goes only [after a release that warns](../releasing.md). Everything else may change at any time.
{"".join(parts)}"""


def _public(module: ModuleType) -> str:
    values = {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower)}
    rows = [f"| `{name}` | {_first(value) if callable(value) else 'A constant.'} |" for name, value in values.items()]
    summary = (module.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
    return f"\n## {module.__name__}\n\n{summary}\n\n| name | |\n|---|---|\n{_lines(rows)}"


def errors_page() -> str:
    """Every error with its code."""
    rows = [
        f"| `{error.code}` | `{error.__module__}.{error.__name__}` | {STATUSES.get(error.code, '')} | {_first(error)} |"
        for error in _errors()
    ]
    return f"""# Errors

{HEAD}
Every error that the library raises has a `code` that does not change: match on it, or on the class. Over HTTP it is the
`code` of a problem, with the status below where a route may answer with it; [the HTTP reference](http.md) has those
that only requests meet. A job's own error has the `code` that its task gave
([writing tasks](../guides/writing-tasks.md)).

| code | class | HTTP | meaning |
|---|---|---|---|
{_lines(rows)}"""


def _errors() -> list[type[CallsheetError]]:
    for path in sorted(SRC.rglob("errors.py")):
        import_module(".".join(path.relative_to(SRC).with_suffix("").parts))
    return sorted(
        (error for error in _below(CallsheetError) if error.__module__.endswith(".errors")),
        key=lambda error: (error.__module__, error.code, error.__name__),
    )


def _below(error: type[CallsheetError]) -> set[type[CallsheetError]]:
    return {error}.union(*(_below(child) for child in error.__subclasses__()))


def _first(value: Any) -> str:
    return (value.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")


def _lines(rows: Iterable[str]) -> str:
    return "".join(f"{row}\n" for row in rows)
