"""Settings: each is a flag of the command line and an environment variable `CALLSHEET_<NAME>`.

This table defines the settings of the processes that run for long; those of one call are in `cli/command_settings.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from callsheet.kernel.durations import seconds
from callsheet.kernel.errors import InvalidInput

DEFAULT_DATABASE_URL = "sqlite:///callsheet.db"
DEFAULT_URL = "http://127.0.0.1:8484"


def contract_objects_url(environ: Mapping[str, str]) -> str:
    """Return the object store URL of contract 002's variables; '' unless S3_BUCKET and S3_ACCESS_KEY_ID are set."""
    bucket = environ.get("S3_BUCKET", "")
    return f"s3://{bucket}" if bucket and environ.get("S3_ACCESS_KEY_ID") else ""


class Kind(Enum):
    """The type that a setting's text is parsed as."""

    TEXT = "text"
    NUMBER = "number"
    COUNT = "count"
    DURATION = "duration"
    MOMENT = "moment"
    NAMES = "names"
    ADDRESS = "address"
    FOLDER = "folder"
    FILE = "file"
    SWITCH = "switch"
    EACH = "each"


class Address(NamedTuple):
    """A host and a port to listen at."""

    host: str
    port: int


class Setting(NamedTuple):
    """One setting. `default` is the text of the default value.

    A setting of kind `EACH` may be given several times; its variable separates values by spaces. `choices` lists all
    allowed values. A setting without `from_environment` controls the action or output of a single call and has no
    variable. `also` lists the variable names that contracts use.
    """

    name: str
    help: str
    kind: Kind = Kind.TEXT
    default: str | None = None
    choices: tuple[str, ...] = ()
    from_environment: bool = True
    also: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable's name, '' without `from_environment`."""
        return f"CALLSHEET_{self.name.upper().replace('-', '_')}" if self.from_environment else ""

    @property
    def parameter(self) -> str:
        """The name in Python."""
        return self.name.replace("-", "_")

    def value_in(self, environ: Mapping[str, str]) -> Any:
        """Return the value of the first of its variables that is set, else the default; raises InvalidInput."""
        names = [name for name in (self.variable, *self.also) if environ.get(name)]
        text = environ[names[0]] if names else self.default
        if text is None:
            return False if self.kind is Kind.SWITCH else None
        if self.choices and text not in self.choices:
            raise InvalidInput(f"{names[0]}: {text!r} is not one of {', '.join(self.choices)}")
        try:
            return parse(self.kind, text)
        except InvalidInput as error:
            raise InvalidInput(f"{names[0]}: {error}") from None


MAX_PORT = 65_535
LOG_LEVELS = ("debug", "info", "warning", "error")
SWITCH_WORDS = {**dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True)}
SWITCH_WORDS |= dict.fromkeys(("0", "false", "f", "no", "n", "off"), False)


def parse(kind: Kind, text: str) -> Any:
    """Return the value that a text means; a duration stays a text, and a path becomes one. Raises InvalidInput."""
    if kind is Kind.DURATION:
        seconds(text)
        return text
    if kind in (Kind.FOLDER, Kind.FILE):
        return Path(text)
    readers: dict[Kind, Callable[[str], Any]] = {
        Kind.NUMBER: _number,
        Kind.COUNT: _count,
        Kind.NAMES: _names,
        Kind.SWITCH: _switch,
        Kind.MOMENT: _moment,
        Kind.ADDRESS: _address,
        Kind.EACH: lambda each: tuple(each.split()),
    }
    return readers[kind](text) if kind in readers else text


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is no whole number") from None


def _count(text: str) -> int:
    if (count := _number(text)) < 1:
        raise InvalidInput(f"{text!r} is less than 1")
    return count


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise InvalidInput(f"{text!r} names nothing; write a,b")
    return names


def _switch(text: str) -> bool:
    """Return whether a switch is on. A duration is off: a service uses the same variable for one."""
    word = text.strip().lower()
    if word not in SWITCH_WORDS:
        seconds(text)
    return SWITCH_WORDS.get(word, False)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is no moment; write 2030-01-31T08:00:00Z") from None
    if moment.tzinfo is None:
        raise InvalidInput(f"{text!r} has no time zone; write {text}Z or {text}+02:00")
    return moment


def _address(text: str) -> Address:
    """Return host and port; an IPv6 address stands in brackets, and without a host all addresses are meant."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise InvalidInput(f"{text!r} is no address; write 127.0.0.1:8080 or :8080")
    return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - asked for by leaving it out


DATABASE_URL = Setting(
    "database-url", "The store: sqlite:///file.db, postgresql://… or redis://…", default=DEFAULT_DATABASE_URL
)
APP_DATABASE_URL = Setting(
    "database-url",
    "The store, instead of the one that the app names. The variable counts only if the app names none.",
)
REDIS_URL = Setting(
    "redis-url", "Redis Streams beside a SQL store, to wake workers faster. The jobs stay in the SQL store."
)
OBJECTS_URL = Setting(
    "objects-url",
    "Where files are stored: file:///folder, or s3://bucket/prefix with the S3_ variables. Default: S3_BUCKET.",
)
CATALOG_URL = Setting(
    "catalog-url",
    "Where videos and their text are stored: sqlite:///path, postgresql://… or `off`. Default: the store's database.",
)
FAIR_QUEUES = Setting(
    "fair-queues", "Queues whose jobs are taken from each tenant in turn, instead of oldest first: a,b.", Kind.NAMES
)
PIPELINE_LOGS = Setting(
    "pipeline-logs", "Write a log of each video job to logs/pipeline/{job_id}.json in the object storage.", Kind.SWITCH
)
MAX_SOURCE = Setting("max-source", "The largest source file of a transcode job, in megabytes.", Kind.COUNT, "100000")
WEBHOOK_RULES = (
    Setting("webhook-http", "Allow webhooks to http:// URLs.", Kind.SWITCH),
    Setting("webhook-networks", "Private networks that webhooks may reach: 10.1.0.0/16.", Kind.NAMES),
    Setting("webhook-ports", "Ports that webhooks may use, instead of 443 and 8443: 443,9443.", Kind.NAMES),
)
STORAGE_RULES = (
    Setting(
        "storage-http",
        "Allow http:// for storages and sources in requests. If no --storage- flag is set, the --webhook- flags count.",
        Kind.SWITCH,
    ),
    Setting("storage-networks", "Private networks that these storages and sources may be in: 10.1.0.0/16.", Kind.NAMES),
    Setting("storage-ports", "Ports that they may use, instead of 443 and 8443: 443,9000.", Kind.NAMES),
)
CONNECTION_LIMITS = (
    Setting("allowed-hosts", "Host names that requests may use, beside localhost: a,b. Default: any name.", Kind.NAMES),
    Setting("trusted-proxies", "Networks of proxies whose X-Forwarded headers are believed: 10.1.0.0/16.", Kind.NAMES),
    Setting("body-idle", "The longest pause inside a request body.", Kind.DURATION, "10s"),
    Setting(
        "body-rate", "The lowest rate of a request body after 10 s, in bytes per second; 0: any.", Kind.NUMBER, "1024"
    ),
    Setting("upload-idle", "The longest pause inside an upload.", Kind.DURATION, "30s"),
    Setting("upload-rate", "The lowest rate of an upload, in bytes per second; 0: any.", Kind.NUMBER, "1024"),
    Setting("strangers", "The most open connections that have not sent a valid key.", Kind.COUNT, "1000"),
    Setting("strangers-per-address", "The most of these from one address.", Kind.COUNT, "300"),
)
WAIT = Setting(
    "wait",
    "How long a start waits for a store or server that is unavailable; 0 fails at once.",
    Kind.DURATION,
    "60s",
)
TASK_PATIENCE = Setting(
    "task-patience",
    "How long a job whose task is unknown to one worker is offered to others; 0 fails it at once.",
    Kind.DURATION,
    "10m",
)
DRAIN = Setting(
    "drain", "How long a stop waits for running jobs before it puts them back into the queue.", Kind.DURATION, "30s"
)
LOGGING = (
    Setting("log-format", "Lines for people, or one JSON object per line.", default="human", choices=("human", "json")),
    Setting(
        "log-level", "The lowest level that is logged; debug also shows tracebacks.", default="info", choices=LOG_LEVELS
    ),
)

WORKER = (
    Setting("queues", "Queues in order of preference: a,b. Default: the queues of the app's tasks.", Kind.NAMES),
    Setting("concurrency", "How many jobs run at once, in each process.", Kind.COUNT, "10"),
    Setting("processes", "How many worker processes run; one that dies is restarted.", Kind.COUNT, "1"),
    Setting("lease", "How long a worker that sends no heartbeat keeps its jobs.", Kind.DURATION, "30s"),
    Setting("prefetch", "The most short jobs that wait in the worker for a free slot.", Kind.NUMBER, "2000"),
    DRAIN,
    Setting("grace", "How long a job may run on after it was told to stop.", Kind.DURATION, "10s"),
    Setting("poll", "How long a worker sleeps before it looks for jobs without a wake-up.", Kind.DURATION, "1s"),
    TASK_PATIENCE,
    Setting("burst", "End when no job is left.", Kind.SWITCH),
    Setting("reload", "Restart when a *.py file in this folder changes; for development.", Kind.SWITCH),
    Setting("workspaces", "The folder in which each job gets a temporary folder.", Kind.FOLDER),
    Setting("health", "Serve /livez, /readyz and /metrics at HOST:PORT; process N uses the Nth port.", Kind.ADDRESS),
    *LOGGING,
    Setting("url", "Get jobs from this server instead of a store. The variable counts only if a token is set."),
    Setting(
        "token",
        "With --url: a worker token, an enrolment token or an API key. Prefer the variable: others can see flags.",
        also=("CALLSHEET_WORKER_TOKEN",),
    ),
    Setting("token-file", "With --url: the file with the token; renewed tokens are written to it.", Kind.FILE),
    Setting("labels", "With --url: what this worker can do: gpu,av1.", Kind.NAMES),
    FAIR_QUEUES,
    Setting("claim-wait", "With --url: how long one request for jobs waits.", Kind.DURATION, "20s"),
    WAIT,
    MAX_SOURCE,
    *WEBHOOK_RULES,
    *STORAGE_RULES,
    PIPELINE_LOGS,
    OBJECTS_URL,
    CATALOG_URL,
    APP_DATABASE_URL,
    REDIS_URL,
)

_PER_TENANT = "of each tenant, unless `callsheet quotas set` gives another limit; 0: no limit."
QUOTAS = (
    Setting("quota-queued", f"The most queued jobs {_PER_TENANT}", Kind.NUMBER, "20000"),
    Setting("quota-running", f"The most running jobs {_PER_TENANT}", Kind.NUMBER, "0"),
    Setting("quota-bytes", f"The most bytes of stored files {_PER_TENANT}", Kind.NUMBER, "100000000000"),
    Setting("quota-streams", f"The most open streams per server process {_PER_TENANT}", Kind.NUMBER, "400"),
    Setting("quota-rate", f"The most requests per second and server process {_PER_TENANT}", Kind.NUMBER, "2000"),
    Setting("quota-uploads", f"The most unfinished uploads {_PER_TENANT}", Kind.NUMBER, "1000"),
)
_STORES = (*LOGGING, DATABASE_URL, REDIS_URL)
_SERVER = (
    Setting("host", "The address to listen at; 0.0.0.0 for all addresses of this machine.", default="127.0.0.1"),
    Setting("port", "The port to listen at.", Kind.COUNT, "8484"),
    Setting(
        "api-key",
        "An additional admin key of 16 characters or more, stored nowhere. Prefer the variable: others can see flags.",
    ),
    Setting("auth", "`off` makes everybody on this machine an admin.", default="on", choices=("on", "off")),
    Setting(
        "job-ttl",
        "How long ended jobs of the gateway are kept, unless the job says so itself.",
        Kind.DURATION,
        "1d",
        also=("JOB_TTL_S",),
    ),
    Setting(
        "queue-depth",
        "The most queued jobs in one queue; further jobs are refused with status 429; 0: no limit.",
        Kind.NUMBER,
        "100000",
    ),
    Setting("rate-limit", "The most requests per second of an API key without a limit of its own.", Kind.COUNT, "1000"),
    Setting("streams", "The most open event streams of an API key.", Kind.COUNT, "200"),
    *QUOTAS,
    Setting("audit-days", "How many days entries of the audit log are kept.", Kind.COUNT, "400"),
    *CONNECTION_LIMITS,
    Setting("webhooks", "`off` leaves webhooks to other processes.", default="on", choices=("on", "off")),
    Setting("webhook-concurrency", "How many webhooks are sent at once.", Kind.COUNT, "5"),
    Setting("webhook-batch", "How many webhooks are read from the store at once, 25 at most.", Kind.COUNT, "10"),
    *WEBHOOK_RULES,
    *STORAGE_RULES,
    FAIR_QUEUES,
    WAIT,
    OBJECTS_URL,
    CATALOG_URL,
)
SERVE = (*_SERVER, *_STORES)
UP = (
    *_SERVER,
    Setting("concurrency", "How many jobs run at once.", Kind.COUNT, "10"),
    DRAIN,
    TASK_PATIENCE,
    MAX_SOURCE,
    PIPELINE_LOGS,
    *_STORES,
)
