"""Settings: each is a flag of the command line and an environment variable `CALLSHEET_<NAME>`.

This table defines all settings; the command line makes its options from it. Reading values is the caller's task.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from callsheet.kernel.job import Status

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


LOG_LEVELS = ("debug", "info", "warning", "error")
STATUSES = tuple(status.value for status in Status)

DATABASE_URL = Setting(
    "database-url", "The store: sqlite:///file.db, postgresql://… or redis://…", default=DEFAULT_DATABASE_URL
)
APP_DATABASE_URL = Setting(
    "database-url", "Use this store instead of the one that the app names. The variable serves apps that name none."
)
REDIS_URL = Setting(
    "redis-url", "Redis Streams beside a SQL store: messages wake workers, the database stays the truth."
)
OBJECTS_URL = Setting(
    "objects-url",
    "Where files are kept: file:///folder, or s3://bucket/prefix with the S3_ variables; S3_BUCKET's unless given.",
)
CATALOG_URL = Setting(
    "catalog-url",
    "Where videos and their text are kept: sqlite:///path, postgresql://… or `off`; with the jobs unless given.",
)
FAIR_QUEUES = Setting(
    "fair-queues", "Queues in which each requester has a line of its own, served in turn: a,b.", Kind.NAMES
)
PIPELINE_LOGS = Setting(
    "pipeline-logs", "Keep what each job of a video did, in logs/pipeline/{job_id}.json of the objects.", Kind.SWITCH
)
MAX_SOURCE = Setting("max-source", "The largest source of a transcoding job, in megabytes.", Kind.COUNT, "100000")
WEBHOOK_RULES = (
    Setting("webhook-http", "Let webhooks go to http:// too.", Kind.SWITCH),
    Setting("webhook-networks", "Networks that webhooks may reach beside public ones: 10.1.0.0/16.", Kind.NAMES),
    Setting("webhook-ports", "Ports that webhooks may go to instead of 443 and 8443: 443,9443.", Kind.NAMES),
)
STORAGE_RULES = (
    Setting(
        "storage-http",
        "Let storages and sources that requests name be at http:// too. Without any of these, webhooks' rules hold.",
        Kind.SWITCH,
    ),
    Setting("storage-networks", "Networks that these may be in beside public ones: 10.1.0.0/16.", Kind.NAMES),
    Setting("storage-ports", "Ports that these may have instead of 443 and 8443: 443,9000.", Kind.NAMES),
)
WALLS = (
    Setting(
        "allowed-hosts", "Names in `Host` that are answered to, beside localhost: a,b. Any unless given.", Kind.NAMES
    ),
    Setting("trusted-proxies", "Networks of proxies that are believed about a client: 10.1.0.0/16.", Kind.NAMES),
    Setting("body-idle", "So long the body of a request may pause.", Kind.DURATION, "10s"),
    Setting("body-rate", "Bytes in a second at which a body comes at least, after 10 s; 0: any.", Kind.NUMBER, "1024"),
    Setting("upload-idle", "So long the body of an upload may pause.", Kind.DURATION, "30s"),
    Setting("upload-rate", "Bytes in a second at which an upload comes at least; 0: any.", Kind.NUMBER, "1024"),
    Setting("strangers", "How many connections may be open that have shown no key.", Kind.COUNT, "1000"),
    Setting("strangers-per-address", "How many of these may come from one address.", Kind.COUNT, "300"),
)
JSON = Setting("json", "Print JSON.", Kind.SWITCH, from_environment=False)
YES = Setting("yes", "Do not ask.", Kind.SWITCH, from_environment=False)

WAIT = Setting(
    "wait",
    "How long a start waits for a store, or with --url a server, that is away; 0 fails at once.",
    Kind.DURATION,
    "60s",
)
TASK_PATIENCE = Setting(
    "task-patience",
    "How long a job is offered to other workers when the one that took it has no such task; 0: not at all.",
    Kind.DURATION,
    "10m",
)

WORKER = (
    Setting("queues", "Queues in order of preference: a,b. Those of the app's tasks unless given.", Kind.NAMES),
    Setting("concurrency", "How many jobs run at once, in each process.", Kind.COUNT, "10"),
    Setting("processes", "How many worker processes; one that dies is started again.", Kind.COUNT, "1"),
    Setting("lease", "How long a silent worker keeps its jobs.", Kind.DURATION, "30s"),
    Setting("prefetch", "At most so many short jobs wait in the worker for a slot.", Kind.NUMBER, "2000"),
    Setting("drain", "How long a stop waits for running jobs before it hands them back.", Kind.DURATION, "30s"),
    Setting("grace", "How long a job that was told to stop may take to do so.", Kind.DURATION, "10s"),
    Setting("poll", "How long to sleep when no wake-up comes.", Kind.DURATION, "1s"),
    TASK_PATIENCE,
    Setting("burst", "End when nothing is left to do.", Kind.SWITCH),
    Setting("reload", "Start again when a *.py file below this folder changes; for development.", Kind.SWITCH),
    Setting("workspaces", "Folder for the jobs' scratch folders.", Kind.FOLDER),
    Setting("health", "Serve /livez, /readyz and /metrics at HOST:PORT; process N takes the Nth port.", Kind.ADDRESS),
    Setting("log-format", "Lines for people, or one JSON object a line.", default="human", choices=("human", "json")),
    Setting("log-level", "The least that is told; debug also shows tracebacks.", default="info", choices=LOG_LEVELS),
    Setting("url", "Get jobs from this server instead of a store. The variable counts where a token is given, too."),
    Setting(
        "token",
        "With --url: the worker's token, an enrolment's, or a key. The variable is safer: others see flags.",
        also=("CALLSHEET_WORKER_TOKEN",),
    ),
    Setting("token-file", "With --url: the file that holds the token; new tokens are written to it.", Kind.FILE),
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

_LOG_FORMAT = Setting(
    "log-format", "Lines for people, or one JSON object a line.", default="human", choices=("human", "json")
)
_LOG_LEVEL = Setting(
    "log-level", "The least that is told; debug also shows tracebacks.", default="info", choices=LOG_LEVELS
)

_EACH_TENANT = "that each tenant may have unless an operator sets others; 0 for any number."
QUOTAS = (
    Setting("quota-queued", f"Queued jobs {_EACH_TENANT}", Kind.NUMBER, "20000"),
    Setting("quota-running", f"Running jobs {_EACH_TENANT}", Kind.NUMBER, "0"),
    Setting("quota-bytes", f"Bytes of stored files {_EACH_TENANT}", Kind.NUMBER, "100000000000"),
    Setting("quota-streams", f"Open streams, in each server process, {_EACH_TENANT}", Kind.NUMBER, "400"),
    Setting("quota-rate", f"Requests in a second, in each server process, {_EACH_TENANT}", Kind.NUMBER, "2000"),
    Setting("quota-uploads", f"Uploads that are neither complete nor dropped {_EACH_TENANT}", Kind.NUMBER, "1000"),
)
SERVE = (
    Setting("host", "Where to listen; 0.0.0.0 for all addresses of this machine.", default="127.0.0.1"),
    Setting("port", "The port.", Kind.COUNT, "8484"),
    Setting(
        "api-key",
        "One more key, an admin's, of 16 characters or more, kept nowhere. The variable is safer: others see flags.",
    ),
    Setting("auth", "`off` lets everybody on this machine in as an admin.", default="on", choices=("on", "off")),
    Setting(
        "job-ttl", "How long jobs of the gateway are kept unless they say.", Kind.DURATION, "1d", also=("JOB_TTL_S",)
    ),
    Setting(
        "queue-depth",
        "More queued jobs than this in one queue are refused with 429; 0 takes any number.",
        Kind.NUMBER,
        "100000",
    ),
    Setting("rate-limit", "Requests in a second that a key may send unless it has its own number.", Kind.COUNT, "1000"),
    Setting("streams", "Open event streams that a key may have.", Kind.COUNT, "200"),
    *QUOTAS,
    Setting("audit-days", "How many days entries of the audit log are kept.", Kind.COUNT, "400"),
    *WALLS,
    Setting("webhooks", "`off` leaves deliveries to other processes.", default="on", choices=("on", "off")),
    Setting("webhook-concurrency", "How many webhooks are under way at once.", Kind.COUNT, "5"),
    Setting("webhook-batch", "How many webhooks are taken from the store at once; 25 at most.", Kind.COUNT, "10"),
    *WEBHOOK_RULES,
    *STORAGE_RULES,
    FAIR_QUEUES,
    WAIT,
    OBJECTS_URL,
    CATALOG_URL,
    _LOG_FORMAT,
    _LOG_LEVEL,
    DATABASE_URL,
    REDIS_URL,
)
UP = (
    *SERVE[:-4],
    Setting("concurrency", "How many jobs run at once.", Kind.COUNT, "10"),
    Setting("drain", "How long a stop waits for running jobs before it hands them back.", Kind.DURATION, "30s"),
    TASK_PATIENCE,
    MAX_SOURCE,
    PIPELINE_LOGS,
    *SERVE[-4:],
)
KEYS_CREATE = (
    Setting(
        "requester", "The tenant whose jobs the key sees, and a worker gets; none unless given.", from_environment=False
    ),
    Setting(
        "scope",
        "What it may do. May be given again; jobs:read and jobs:write unless given. worker: its tenant's jobs alone.",
        Kind.EACH,
        choices=("jobs:read", "jobs:write", "worker", "worker:all", "admin"),
        from_environment=False,
    ),
    Setting("expires", "How long it is good: 90d. For ever unless given.", Kind.DURATION, from_environment=False),
    Setting("rate", "Requests in a second, instead of the server's number.", Kind.COUNT, from_environment=False),
    Setting("team", "A team whose videos it sees too. May be given again.", Kind.EACH, from_environment=False),
    JSON,
    DATABASE_URL,
)
KEYS_LIST = (JSON, DATABASE_URL)
_TENANT = Setting("tenant", "Only this tenant's.", from_environment=False)
QUOTAS_LIST = (_TENANT, JSON, DATABASE_URL)
QUOTAS_SET = (
    Setting("queued", "Queued jobs.", Kind.NUMBER, from_environment=False),
    Setting("running", "Running jobs.", Kind.NUMBER, from_environment=False),
    Setting("bytes", "Bytes of stored files.", Kind.NUMBER, from_environment=False),
    Setting("streams", "Open streams, in each server process.", Kind.NUMBER, from_environment=False),
    Setting("rate", "Requests in a second, in each server process.", Kind.NUMBER, from_environment=False),
    Setting("uploads", "Uploads that are neither complete nor dropped.", Kind.NUMBER, from_environment=False),
    DATABASE_URL,
)
AUDIT = (
    Setting("action", "Only this action, or a family of them: key.", from_environment=False),
    Setting("actor", "Only acts of this key, this worker, or cli.", from_environment=False),
    _TENANT,
    Setting(
        "since",
        "Only at this moment or later: 2030-01-31T08:00:00Z.",
        Kind.MOMENT,
        from_environment=False,
    ),
    Setting("until", "Only before this moment.", Kind.MOMENT, from_environment=False),
    Setting("limit", "At most so many, the newest.", Kind.COUNT, "50"),
    JSON,
    DATABASE_URL,
)

_REQUESTER = Setting("requester", "Only this requester's.", from_environment=False)
_DELIVERY = (
    Setting("job", "Only events of this job."),
    Setting("endpoint", "Only events for this endpoint or URL."),
    _REQUESTER,
)
WEBHOOKS_LIST = (
    Setting(
        "status",
        "Only events in this status.",
        choices=("pending", "delivering", "delivered", "dead_letter"),
    ),
    *_DELIVERY,
    Setting("limit", "At most so many, the newest.", Kind.COUNT, "50"),
    JSON,
    DATABASE_URL,
)
WEBHOOKS_REPLAY = (
    Setting("all", "All dead letters that the filters name.", Kind.SWITCH, from_environment=False),
    *_DELIVERY,
    Setting("rate", "So many in a second.", Kind.COUNT, "20", from_environment=False),
    YES,
    DATABASE_URL,
)
WEBHOOKS_ENDPOINTS = (_REQUESTER, JSON, DATABASE_URL)
WEBHOOKS_CREATE = (
    Setting("requester", "Whose endpoint it is; nobody's in particular unless given.", from_environment=False),
    Setting("description", "What it is for."),
    *WEBHOOK_RULES,
    JSON,
    DATABASE_URL,
)
WEBHOOKS_ROTATE = (
    Setting(
        "overlap", "How long the old secret signs beside the new one.", Kind.DURATION, "1d", from_environment=False
    ),
    JSON,
    DATABASE_URL,
)

KEYS_FILE = Setting(
    "keys-file", "The keyring of the vault. CALLSHEET_KEYS and CALLSHEET_KMS are other places for keys."
)
VAULT_ROTATE = (
    Setting(
        "prepare",
        "Make the key but do not use it yet: first give all machines the file.",
        Kind.SWITCH,
        from_environment=False,
    ),
    KEYS_FILE,
)
VAULT_REWRAP = (KEYS_FILE, DATABASE_URL)
VAULT_STATUS = (JSON, KEYS_FILE, DATABASE_URL)

ENQUEUE = (
    Setting("arg", "An argument, name=value; the value is JSON, else text. May be given again.", Kind.EACH),
    Setting("queue", "The job's queue; the task's own unless given."),
    Setting("priority", "Higher runs first.", Kind.NUMBER),
    Setting("delay", "Not before so long from now: 10m.", Kind.DURATION),
    Setting("run-at", "Not before this moment: 2030-01-31T08:00:00Z.", Kind.MOMENT),
    Setting("unique-key", "No second job while one with this key waits or runs."),
    Setting("idempotency-key", "Sending the same again answers with the first job."),
    Setting("depends-on", "Wait for this job's success. May be given again.", Kind.EACH),
    Setting("ttl", "How long the ended job is kept.", Kind.DURATION),
    Setting("max-attempts", "How often it may be tried.", Kind.COUNT),
    Setting("wait", "Show progress until the end and print the result as JSON.", Kind.SWITCH),
    Setting("timeout", "With --wait: give up waiting after this; the job goes on.", Kind.DURATION),
    Setting("log-level", "The least that is told; debug also shows tracebacks.", default="warning", choices=LOG_LEVELS),
    APP_DATABASE_URL,
)

_URL = Setting("url", "The server.", default=DEFAULT_URL)
ASK = (
    Setting("task", "What kind of answer.", default="chat", choices=("chat", "plan", "code")),
    Setting("model", "Which model; the server's own choice unless given."),
    Setting("system", "What the model is told before the question."),
    _URL,
    JSON,
)
WATCH = (
    Setting("after", "Only what comes after this event's id: 1704067200000-5.", from_environment=False),
    _URL,
    JSON,
)

_ONLY_QUEUE = Setting("queue", "Only jobs of this queue.")
_ONLY_TASK = Setting("task", "Only jobs of this task.")
_LIMIT = Setting("limit", "At most so many, the newest.", Kind.COUNT, "50")

JOBS_LIST = (
    Setting("status", "Only jobs in this status. May be given again.", Kind.EACH, choices=STATUSES),
    _ONLY_QUEUE,
    _ONLY_TASK,
    _LIMIT,
    JSON,
    DATABASE_URL,
)
JOBS_SHOW = (JSON, DATABASE_URL)
JOBS_CANCEL = (Setting("reason", "Kept with the job."), DATABASE_URL)
JOBS_DEAD = (
    _ONLY_QUEUE,
    _ONLY_TASK,
    _LIMIT,
    Setting("retry-all", "Bring all of them back.", Kind.SWITCH, from_environment=False),
    YES,
    JSON,
    DATABASE_URL,
)
_DEAD_FILTERS = (
    Setting(
        "ended-as",
        "Dead letters, jobs that failed for good at once, or both.",
        default="dead_letter",
        choices=("dead_letter", "failed", "both"),
    ),
    _ONLY_QUEUE,
    _ONLY_TASK,
    Setting("contract", "Only jobs of this contract."),
    Setting("error-code", "Only jobs that ended with this error."),
    Setting("created-from", "Only jobs made at this moment or later: 2030-01-31T08:00:00Z.", Kind.MOMENT),
    Setting("created-to", "Only jobs made before this moment.", Kind.MOMENT),
    Setting("ended-from", "Only jobs that ended at this moment or later.", Kind.MOMENT),
    Setting("ended-to", "Only jobs that ended before this moment.", Kind.MOMENT),
)
_AT_MOST = Setting("limit", "At most so many, the newest; all unless given.", Kind.COUNT)
DEAD_LIST = (*_DEAD_FILTERS, _LIMIT, JSON, DATABASE_URL)
DEAD_REPLAY = (
    *_DEAD_FILTERS,
    _AT_MOST,
    Setting("rate", "So many in a second; as fast as it goes unless given.", Kind.COUNT, from_environment=False),
    YES,
    JSON,
    DATABASE_URL,
)
DEAD_PURGE = (*_DEAD_FILTERS, _AT_MOST, YES, JSON, DATABASE_URL)
WORKERS_LIST = (JSON, DATABASE_URL)
WORKERS_ENROLL = (
    Setting("queues", "Queues that it may claim from: a,b. All unless given.", Kind.NAMES),
    Setting("tenants", "Requesters whose jobs it gets and makes, and no others': a,b. All unless given.", Kind.NAMES),
    Setting("expires", "How long the enrolment token is good.", Kind.DURATION, "1h", from_environment=False),
    Setting("uses", "How many workers may enrol with it.", Kind.COUNT, "1"),
    Setting("token-life", "How long each worker token is good; workers renew theirs in time.", Kind.DURATION, "1h"),
    JSON,
    DATABASE_URL,
)
WORKERS_DRAIN = (
    Setting("undo", "Let it take jobs again.", Kind.SWITCH, from_environment=False),
    DATABASE_URL,
)
_ONLY = Setting("only", "Only checks whose clause or claim holds this text.", from_environment=False)
_SLOW = Setting("slow", "Also checks that take a minute.", Kind.SWITCH, from_environment=False)
TESTKIT_WORKER = (_ONLY, _SLOW, JSON)
TESTKIT_SERVER = (
    _URL,
    Setting(
        "token",
        "A key with the scopes jobs:write and worker. The variable is safer: others see flags.",
        also=("CALLSHEET_WORKER_TOKEN",),
    ),
    Setting("enqueue", "A command that puts a job in line, told on its standard input.", from_environment=False),
    _ONLY,
    _SLOW,
    JSON,
)
_MEDIA_PLACES = (OBJECTS_URL, CATALOG_URL, DATABASE_URL)
_OWNER = Setting("owner", "Whose the video is: the requester of the keys that see it.", from_environment=False)
_TEAM = Setting("team", "The team that may watch and search it, too.", from_environment=False)
VIDEO_ADD = (
    Setting("title", "Its title; the file's name unless given.", from_environment=False),
    Setting("languages", "Languages of its text: eng,deu.", Kind.NAMES, "eng", from_environment=False),
    Setting("detach", "Do not wait: workers that run elsewhere do the work.", Kind.SWITCH, from_environment=False),
    _OWNER,
    _TEAM,
    JSON,
    *_MEDIA_PLACES,
)
VIDEO_LIST = (
    Setting("limit", "How many at most.", Kind.COUNT, "50"),
    JSON,
    *_MEDIA_PLACES[1:],
)
VIDEO_SEARCH = (
    Setting(
        "mode",
        "`fuzzy` forgives a wrong letter, `substring` finds parts of words.",
        default="fuzzy",
        choices=("fuzzy", "exact", "substring"),
        from_environment=False,
    ),
    Setting("video", "Only in this video. May be given again.", Kind.EACH, from_environment=False),
    Setting("limit", "How many at most.", Kind.COUNT, "20"),
    JSON,
    *_MEDIA_PLACES[1:],
)
VIDEO_CLIP = (
    Setting("padding", "So much before and after: 2s.", Kind.DURATION, "2s", from_environment=False),
    Setting("output", "Where to write the clip; CLIP_ID.mp4 unless given.", Kind.FILE, from_environment=False),
    *_MEDIA_PLACES,
)
VIDEO_TEXT = (
    Setting(
        "format",
        "Subtitles, a table, or all that is known.",
        default="vtt",
        choices=("vtt", "srt", "csv", "json"),
        from_environment=False,
    ),
    *_MEDIA_PLACES[1:],
)
SCAN = (
    Setting("every", "Go on, and look again so often: 30s. Once unless given.", Kind.DURATION),
    _OWNER,
    _TEAM,
    WAIT._replace(help="With --every: how long a start waits for a store that is away; 0 fails at once."),
    JSON,
    *_MEDIA_PLACES,
)
DEMO = (
    Setting("home", "The demo's folder; .callsheet-demo here unless given.", Kind.FOLDER, from_environment=False),
    Setting("port", "The port; 8484, or a free one, unless given.", Kind.COUNT),
    Setting("exit", "End when all is done; the variable is CALLSHEET_DEMO_EXIT.", Kind.SWITCH, from_environment=False),
    OBJECTS_URL,
    CATALOG_URL,
    APP_DATABASE_URL,
)
DOCTOR = (JSON, OBJECTS_URL, DATABASE_URL, REDIS_URL)
STORE_ONLY = (DATABASE_URL,)
MIGRATE = (CATALOG_URL, DATABASE_URL)
