"""The settings of the commands that do one thing and end. Those of servers and workers are in `callsheet.settings`."""

from __future__ import annotations

from callsheet.kernel.job import Status
from callsheet.settings import (
    APP_DATABASE_URL,
    CATALOG_URL,
    DATABASE_URL,
    DEFAULT_URL,
    LOG_LEVELS,
    OBJECTS_URL,
    REDIS_URL,
    WAIT,
    WEBHOOK_RULES,
    Kind,
    Setting,
)


def per_call(
    name: str, help: str, kind: Kind = Kind.TEXT, default: str | None = None, choices: tuple[str, ...] = ()
) -> Setting:
    """Return a setting without a variable: left in an environment, it would change calls that did not ask for it."""
    return Setting(name, help, kind, default, choices, from_environment=False)


JSON = per_call("json", "Print JSON.", Kind.SWITCH)
YES = per_call("yes", "Do not ask for confirmation.", Kind.SWITCH)
STORE_ONLY = (DATABASE_URL,)
STORE_JSON = (JSON, DATABASE_URL)
DOCTOR = (JSON, OBJECTS_URL, DATABASE_URL, REDIS_URL)
MIGRATE = (CATALOG_URL, DATABASE_URL)
_LIMIT = Setting("limit", "Show at most this many, the newest.", Kind.COUNT, "50")
_TENANT = per_call("tenant", "Only this tenant's.")
_REQUESTER = per_call("requester", "Only this requester's.")

KEYS_CREATE = (
    per_call("requester", "The tenant whose jobs the key may use. Default: no tenant."),
    per_call(
        "scope",
        "What the key may do; may be repeated. Default: jobs:read and jobs:write. worker: only its tenant's jobs.",
        Kind.EACH,
        choices=("jobs:read", "jobs:write", "worker", "worker:all", "admin"),
    ),
    per_call("expires", "How long the key is valid: 90d. Default: for ever.", Kind.DURATION),
    per_call("rate", "The most requests per second of this key. Default: the server's --rate-limit.", Kind.COUNT),
    per_call("team", "A team whose videos the key may see, too; may be repeated.", Kind.EACH),
    *STORE_JSON,
)
QUOTAS_LIST = (_TENANT, *STORE_JSON)
QUOTAS_SET = (
    per_call("queued", "The most queued jobs.", Kind.NUMBER),
    per_call("running", "The most running jobs.", Kind.NUMBER),
    per_call("bytes", "The most bytes of stored files.", Kind.NUMBER),
    per_call("streams", "The most open streams, in each server process.", Kind.NUMBER),
    per_call("rate", "The most requests per second, in each server process.", Kind.NUMBER),
    per_call("uploads", "The most unfinished uploads.", Kind.NUMBER),
    DATABASE_URL,
)
AUDIT = (
    per_call("action", "Only this action, or a family of actions: key."),
    per_call("actor", "Only actions of this key or worker, or `cli`."),
    _TENANT,
    per_call("since", "Only at this moment or later: 2030-01-31T08:00:00Z.", Kind.MOMENT),
    per_call("until", "Only before this moment.", Kind.MOMENT),
    _LIMIT,
    *STORE_JSON,
)

_DELIVERY = (
    Setting("job", "Only events of this job."),
    Setting("endpoint", "Only events for this endpoint or URL."),
    _REQUESTER,
)
WEBHOOKS_LIST = (
    Setting("status", "Only events in this status.", choices=("pending", "delivering", "delivered", "dead_letter")),
    *_DELIVERY,
    _LIMIT,
    *STORE_JSON,
)
WEBHOOKS_REPLAY = (
    per_call("all", "Send all dead letters that the filters match.", Kind.SWITCH),
    *_DELIVERY,
    per_call("rate", "How many are sent per second.", Kind.COUNT, "20"),
    YES,
    DATABASE_URL,
)
WEBHOOKS_ENDPOINTS = (_REQUESTER, *STORE_JSON)
WEBHOOKS_CREATE = (
    per_call("requester", "The tenant whose events are sent. Default: no tenant."),
    Setting("description", "A note about the endpoint."),
    *WEBHOOK_RULES,
    *STORE_JSON,
)
WEBHOOKS_ROTATE = (
    per_call("overlap", "How long the old secret still signs beside the new one.", Kind.DURATION, "1d"),
    *STORE_JSON,
)

KEYS_FILE = Setting(
    "keys-file", "The keyring of the vault. Keys may also be in CALLSHEET_KEYS, or in the service CALLSHEET_KMS."
)
VAULT_ROTATE = (
    per_call("prepare", "Create the key without using it: copy the file to all machines first.", Kind.SWITCH),
    KEYS_FILE,
)
VAULT_REWRAP = (KEYS_FILE, DATABASE_URL)
VAULT_STATUS = (JSON, KEYS_FILE, DATABASE_URL)

ENQUEUE = (
    Setting("arg", "An argument, name=value; the value is JSON, else text. May be repeated.", Kind.EACH),
    Setting("queue", "The job's queue. Default: the task's queue."),
    Setting("priority", "Jobs with a higher priority run first.", Kind.NUMBER),
    Setting("delay", "Start the job no sooner than after this time: 10m.", Kind.DURATION),
    Setting("run-at", "Start the job no sooner than at this moment: 2030-01-31T08:00:00Z.", Kind.MOMENT),
    Setting("unique-key", "Create no second job while one with this key is queued or running."),
    Setting("idempotency-key", "A second command with this key returns the first job."),
    Setting("depends-on", "Start after this job has succeeded. May be repeated.", Kind.EACH),
    Setting("ttl", "How long the ended job is kept.", Kind.DURATION),
    Setting("max-attempts", "How often the job may be tried.", Kind.COUNT),
    Setting("wait", "Show progress until the job ends and print its result as JSON.", Kind.SWITCH),
    Setting("timeout", "With --wait: stop waiting after this time; the job goes on.", Kind.DURATION),
    Setting(
        "log-level",
        "The lowest level that is logged; debug also shows tracebacks.",
        default="warning",
        choices=LOG_LEVELS,
    ),
    APP_DATABASE_URL,
)

SCHEDULES_PUT = (
    per_call("cron", "The times: minute, hour, day of the month, month, weekday: '30 2 * * *'."),
    per_call("every", "In place of --cron: an interval: 10m.", Kind.DURATION),
    per_call("timezone", "The zone of the cron line: Europe/Berlin.", default="UTC"),
    per_call(
        "missed",
        "What happens to slots that passed while nothing ran.",
        default="once",
        choices=("skip", "once", "all"),
    ),
    per_call(
        "overlap",
        "What happens to a slot while the job before has not ended.",
        default="queue",
        choices=("queue", "skip", "cancel"),
    ),
    per_call("queue", "The queue of the jobs. Default: the task's, else default."),
    per_call("priority", "Jobs with a higher priority run first. Default: the task's, else 0.", Kind.NUMBER),
    per_call("max-attempts", "How often each job may be tried. Default: the task's.", Kind.COUNT),
    *STORE_JSON,
)

_URL = Setting("url", "The server.", default=DEFAULT_URL)
ASK = (
    Setting("task", "The kind of answer.", default="chat", choices=("chat", "plan", "code")),
    Setting("model", "The model. Default: the server's choice."),
    Setting("system", "Instructions for the model, before the question."),
    _URL,
    JSON,
)
WATCH = (per_call("after", "Only events after this event id: 1704067200000-5."), _URL, JSON)

_JOB_FILTERS = (Setting("queue", "Only jobs of this queue."), Setting("task", "Only jobs of this task."))
JOBS_LIST = (
    Setting(
        "status",
        "Only jobs in this status. May be repeated.",
        Kind.EACH,
        choices=tuple(status.value for status in Status),
    ),
    *_JOB_FILTERS,
    _LIMIT,
    *STORE_JSON,
)
JOBS_CANCEL = (Setting("reason", "The reason, stored with the job."), DATABASE_URL)
JOBS_DEAD = (
    *_JOB_FILTERS,
    _LIMIT,
    per_call("retry-all", "Put all of them back into their queues.", Kind.SWITCH),
    YES,
    *STORE_JSON,
)
_DEAD_FILTERS = (
    Setting(
        "ended-as",
        "Dead letters, jobs that failed without a retry, or both.",
        default="dead_letter",
        choices=("dead_letter", "failed", "both"),
    ),
    *_JOB_FILTERS,
    Setting("contract", "Only jobs of this contract."),
    Setting("error-code", "Only jobs that ended with this error code."),
    Setting("created-from", "Only jobs created at this moment or later: 2030-01-31T08:00:00Z.", Kind.MOMENT),
    Setting("created-to", "Only jobs created before this moment.", Kind.MOMENT),
    Setting("ended-from", "Only jobs that ended at this moment or later.", Kind.MOMENT),
    Setting("ended-to", "Only jobs that ended before this moment.", Kind.MOMENT),
)
_OPTIONAL_LIMIT = Setting("limit", "At most this many, the newest. Default: all.", Kind.COUNT)
DEAD_LIST = (*_DEAD_FILTERS, _LIMIT, *STORE_JSON)
DEAD_REPLAY = (
    *_DEAD_FILTERS,
    _OPTIONAL_LIMIT,
    per_call("rate", "How many are replayed per second. Default: as fast as possible.", Kind.COUNT),
    YES,
    *STORE_JSON,
)
DEAD_PURGE = (*_DEAD_FILTERS, _OPTIONAL_LIMIT, YES, *STORE_JSON)

WORKERS_ENROLL = (
    Setting("queues", "Queues that the worker may claim from: a,b. Default: all.", Kind.NAMES),
    Setting("tenants", "Tenants whose jobs the worker may claim and create: a,b. Default: all.", Kind.NAMES),
    per_call("expires", "How long the enrolment token is valid.", Kind.DURATION, "1h"),
    Setting("uses", "How many workers may enrol with the token.", Kind.COUNT, "1"),
    Setting("token-life", "How long each worker token is valid; workers renew theirs in time.", Kind.DURATION, "1h"),
    *STORE_JSON,
)
WORKERS_DRAIN = (per_call("undo", "Let the worker take jobs again.", Kind.SWITCH), DATABASE_URL)

_TESTKIT = (
    per_call("only", "Only checks whose clause or claim contains this text."),
    per_call("slow", "Also run checks that take a minute.", Kind.SWITCH),
    JSON,
)
TESTKIT_WORKER = _TESTKIT
TESTKIT_SERVER = (
    _URL,
    Setting(
        "token",
        "A key with the scopes jobs:write and worker. Prefer the variable: others can see flags.",
        also=("CALLSHEET_WORKER_TOKEN",),
    ),
    per_call("enqueue", "A command that queues the job described on its standard input."),
    *_TESTKIT,
)

_VIDEO_STORES = (CATALOG_URL, DATABASE_URL)
_OWNER = (
    per_call("owner", "The tenant that owns the video; the tenant's keys may see it."),
    per_call("team", "A team that may watch and search the video, too."),
)
VIDEO_ADD = (
    per_call("title", "The video's title. Default: the file's name."),
    per_call("languages", "The languages of the text in the video: eng,deu.", Kind.NAMES, "eng"),
    per_call("detach", "Do not wait: workers that run elsewhere process the video.", Kind.SWITCH),
    *_OWNER,
    JSON,
    OBJECTS_URL,
    *_VIDEO_STORES,
)
VIDEO_LIST = (_LIMIT, JSON, *_VIDEO_STORES)
VIDEO_SEARCH = (
    per_call(
        "mode",
        "`fuzzy` allows a wrong letter, `substring` finds parts of words.",
        default="fuzzy",
        choices=("fuzzy", "exact", "substring"),
    ),
    per_call("video", "Only in this video. May be repeated.", Kind.EACH),
    Setting("limit", "Show at most this many.", Kind.COUNT, "20"),
    JSON,
    *_VIDEO_STORES,
)
VIDEO_CLIP = (
    per_call("padding", "Additional time before and after the clip: 2s.", Kind.DURATION, "2s"),
    per_call("output", "The file to write. Default: CLIP_ID.mp4.", Kind.FILE),
    OBJECTS_URL,
    *_VIDEO_STORES,
)
VIDEO_TEXT = (
    per_call(
        "format",
        "Subtitles, a table, or all data.",
        default="vtt",
        choices=("vtt", "srt", "csv", "json"),
    ),
    *_VIDEO_STORES,
)
SCAN = (
    Setting("every", "Repeat the scan after this time, for ever: 30s. Default: scan once.", Kind.DURATION),
    *_OWNER,
    WAIT._replace(help="With --every: how long a start waits for a store that is unavailable; 0 fails at once."),
    JSON,
    OBJECTS_URL,
    *_VIDEO_STORES,
)
DEMO = (
    per_call("home", "The demo's folder. Default: .callsheet-demo in the current folder.", Kind.FOLDER),
    Setting("port", "The port. Default: 8484, or a free port.", Kind.COUNT),
    per_call("exit", "End when all steps are done; CALLSHEET_DEMO_EXIT does the same.", Kind.SWITCH),
    OBJECTS_URL,
    CATALOG_URL,
    APP_DATABASE_URL,
)
