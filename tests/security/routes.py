"""Every route of the server, who may call it, and what a stranger's call would name.

`test_matrix.py` compares this table with the routes of the running app: a route that is missing here fails the test.
"""

from __future__ import annotations

from typing import Any, NamedTuple

READ, WRITE, WORKER, ADMIN = "jobs:read", "jobs:write", "worker", "admin"
OPEN, SIGNED, SESSION, PAGE = "open", "signed", "session", "page"
PROOF = {"worker_id": "w1", "job_id": "{running_id}", "lease_token": "{lease_token}"}
END = {**PROOF, "attempt_id": "1"}


class Route(NamedTuple):
    """One route. `scope` is what a key needs, or how else the route is guarded.

    `path` and `body` name things of the victim in braces, by the fields of `Estate`. `owned` marks routes about such a
    resource: its owner is admitted, and other tenants get a 404.
    """

    method: str
    template: str
    scope: str
    path: str = ""
    body: Any = None
    owned: bool = False
    stream: bool = False

    @property
    def name(self) -> str:
        """The route as a test's id."""
        return f"{self.method} {self.template}"


def _owned(method: str, template: str, scope: str, path: str, body: Any = None, *, stream: bool = False) -> Route:
    return Route(method, template, scope, path, body, owned=True, stream=stream)


GATEWAY = [
    Route("POST", "/v1/jobs", WRITE, body={"task": "chat", "payload": {"prompt": "hi"}}),
    Route("GET", "/v1/jobs", READ),
    Route("POST", "/v1/jobs/batch", WRITE, body={"jobs": [{"task": "chat", "payload": {"prompt": "hi"}}]}),
    Route("GET", "/v1/tasks", READ),
    _owned("GET", "/v1/tasks/{name}", READ, "/v1/tasks/{task_name}"),
    Route("GET", "/v1/schedules", READ),
    _owned("GET", "/v1/schedules/{name}", READ, "/v1/schedules/{schedule_name}"),
    Route("PUT", "/v1/schedules/{name}", WRITE, "/v1/schedules/another", {"task": "chat", "payload": {}, "every": 60}),
    _owned("POST", "/v1/schedules/{name}/pause", WRITE, "/v1/schedules/{schedule_name}/pause"),
    _owned("POST", "/v1/schedules/{name}/resume", WRITE, "/v1/schedules/{schedule_name}/resume"),
    _owned("POST", "/v1/schedules/{name}/run", WRITE, "/v1/schedules/{schedule_name}/run"),
    _owned("DELETE", "/v1/schedules/{name}", WRITE, "/v1/schedules/{schedule_name}"),
    _owned("GET", "/v1/jobs/{job_id}", READ, "/v1/jobs/{queued_id}"),
    _owned("GET", "/v1/jobs/{job_id}/events", READ, "/v1/jobs/{queued_id}/events", stream=True),
    _owned("POST", "/v1/jobs/{job_id}/events/ticket", READ, "/v1/jobs/{queued_id}/events/ticket"),
    Route("POST", "/v1/events/ticket", READ),
    _owned("GET", "/v1/events", READ, "/v1/events?jobs={queued_id}", stream=True),
    _owned("GET", "/v1/jobs/{job_id}/artifacts", READ, "/v1/jobs/{done_id}/artifacts"),
    _owned("GET", "/v1/jobs/{job_id}/artifacts/{name:path}", READ, "/v1/jobs/{done_id}/artifacts/out.txt"),
    _owned("GET", "/v1/jobs/{job_id}/log", READ, "/v1/jobs/{done_id}/log"),
    _owned("GET", "/v1/jobs/{job_id}/attempts", READ, "/v1/jobs/{done_id}/attempts"),
    _owned("GET", "/v1/jobs/{job_id}/state", READ, "/v1/jobs/{done_id}/state"),
    _owned("POST", "/v1/jobs/{job_id}/cancel", WRITE, "/v1/jobs/{queued_id}/cancel"),
]
WORKERS = [
    Route("POST", "/internal/worker/claim", WORKER, body={"worker_id": "w1", "streams": ["default"]}),
    Route("POST", "/internal/worker/heartbeat", WORKER, body=PROOF),
    Route("POST", "/internal/worker/heartbeats", WORKER, body={"worker_id": "w1", "leases": []}),
    Route("POST", "/internal/worker/moves", WORKER, body={"worker_id": "w1", "moves": []}),
    Route("POST", "/internal/worker/complete", WORKER, body={**END, "result": "stolen"}),
    Route("POST", "/internal/worker/fail", WORKER, body={**END, "error": {"code": "x"}}),
    Route("POST", "/internal/worker/release", WORKER, body=END),
    Route("POST", "/internal/worker/checkpoints", WORKER, body=PROOF),
    Route("POST", "/internal/worker/uploads", WORKER, body={**PROOF, "name": "x", "bytes": 1}),
    Route("POST", "/internal/worker/uploads/complete", WORKER, body={**PROOF, "name": "x", "upload_id": "u"}),
    Route("POST", "/internal/worker/token", WORKER),
    Route("POST", "/internal/worker/enroll", OPEN, body={"enrolment_token": "cs_enroll_x", "worker_name": "w"}),
    Route("GET", "/v1/workers", ADMIN),
    Route("GET", "/v1/workers/enrolments", ADMIN),
    Route("POST", "/v1/workers/enrolments", ADMIN),
    Route("DELETE", "/v1/workers/enrolments/{enrolment_id}", ADMIN, "/v1/workers/enrolments/{enrolment_id}"),
    Route("POST", "/v1/workers/{worker_id}/drain", ADMIN, "/v1/workers/{worker_id}/drain"),
    Route("DELETE", "/v1/workers/{worker_id}", ADMIN, "/v1/workers/{worker_id}"),
]
LIVE = [
    Route("POST", "/api/jobs", WRITE, body={"task": "greet", "payload": {}}),
    Route("GET", "/api/jobs", READ),
    _owned("GET", "/api/jobs/{job_id}", READ, "/api/jobs/{live_id}"),
    _owned("GET", "/api/jobs/{job_id}/events", READ, "/api/jobs/{live_id}/events", stream=True),
    _owned("POST", "/api/jobs/{job_id}/events/ticket", READ, "/api/jobs/{live_id}/events/ticket"),
    _owned("POST", "/api/jobs/{job_id}/resume", WRITE, "/api/jobs/{live_id}/resume"),
    _owned("POST", "/api/jobs/{job_id}/cancel", WRITE, "/api/jobs/{live_id}/cancel"),
]
TRANSCODING = [
    Route("POST", "/transcode", WRITE, body={"source": "object:{upload_key}", "outputs": [{"format": "mp3"}]}),
    _owned("GET", "/transcode/status", READ, "/transcode/status?job_id={transcode_id}"),
    _owned(
        "PUT",
        "/transcode/{job_id}/credentials",
        WRITE,
        "/transcode/{transcode_id}/credentials",
        {"source_url": "https://example.org/b"},
    ),
]
VIDEOS = [
    Route("POST", "/videos", WRITE, body={"name": "a.mp4", "size": 1}),
    Route("GET", "/videos", READ),
    Route("GET", "/search", READ, "/search?q=secret"),
    Route("GET", "/search/suggestions", READ, "/search/suggestions?q=sec"),
    _owned("GET", "/videos/{video_id}", READ, "/videos/{video_id}"),
    _owned("GET", "/videos/{video_id}/hls/{name}", READ, "/videos/{video_id}/hls/index.m3u8"),
    _owned("GET", "/videos/{video_id}/poster.jpg", READ, "/videos/{video_id}/poster.jpg"),
    _owned("GET", "/videos/{video_id}/frames/at/{at}.jpg", READ, "/videos/{video_id}/frames/at/0.jpg"),
    _owned("GET", "/videos/{video_id}/segments", READ, "/videos/{video_id}/segments"),
    _owned("GET", "/videos/{video_id}/entities", READ, "/videos/{video_id}/entities"),
    _owned("GET", "/videos/{video_id}/text", READ, "/videos/{video_id}/text"),
    _owned("GET", "/videos/{video_id}/clips", READ, "/videos/{video_id}/clips"),
    _owned("POST", "/clips", WRITE, "/clips", {"video_id": "{video_id}", "t_start": 0, "t_end": 500}),
    _owned("GET", "/clips/{clip_id}", READ, "/clips/{clip_id}"),
    _owned("GET", "/clips/{clip_id}/file", READ, "/clips/{clip_id}/file"),
    _owned("POST", "/videos/{video_id}/again", WRITE, "/videos/{video_id}/again", {"stage": "transcode"}),
    _owned("POST", "/videos/{video_id}/complete", WRITE, "/videos/{video_id}/complete"),
    Route("GET", "/pipeline/jobs", READ),
    _owned("GET", "/pipeline/jobs/{job_id}", READ, "/pipeline/jobs/{pipeline_id}"),
    Route("POST", "/pipeline/jobs/{job_id}/retry", ADMIN, "/pipeline/jobs/{pipeline_id}/retry"),
    _owned("DELETE", "/videos/{video_id}", WRITE, "/videos/{video_id}"),
]
OPERATORS = [
    Route("GET", "/v1/overview", READ),
    Route("GET", "/v1/dead-letters", READ),
    Route("POST", "/v1/dead-letters/replay", WRITE),
    Route("POST", "/v1/dead-letters/purge", WRITE, body={"confirm": True, "task": "no-such-task"}),
    _owned("GET", "/v1/dead-letters/{job_id}", READ, "/v1/dead-letters/{dead_id}"),
    _owned("GET", "/v1/operations/{operation_id}", READ, "/v1/operations/{operation_id}"),
    _owned("POST", "/v1/operations/{operation_id}/stop", WRITE, "/v1/operations/{operation_id}/stop"),
    _owned("POST", "/v1/dead-letters/{job_id}/replay", WRITE, "/v1/dead-letters/{dead_id}/replay"),
    _owned("DELETE", "/v1/dead-letters/{job_id}", WRITE, "/v1/dead-letters/{other_dead_id}"),
    Route("GET", "/v1/quotas", READ),
    Route("PUT", "/v1/quotas/{tenant:path}", ADMIN, "/v1/quotas/acme", {"queued": 5}),
    Route("DELETE", "/v1/quotas/{tenant:path}", ADMIN, "/v1/quotas/acme"),
    Route("GET", "/v1/audit", WRITE),
    Route("POST", "/v1/keys", ADMIN, body={"name": "x"}),
    Route("GET", "/v1/keys", ADMIN),
    Route("DELETE", "/v1/keys/{key_id}", ADMIN, "/v1/keys/{key_id}"),
]
HOOKS = "/v1/webhooks"
ENDPOINT = f"{HOOKS}/endpoints/{{endpoint_id}}"
WEBHOOKS = [
    Route("GET", f"{HOOKS}/deliveries", READ),
    Route("POST", f"{HOOKS}/deliveries/replay", WRITE),
    _owned("GET", f"{HOOKS}/deliveries/{{event_id}}", READ, f"{HOOKS}/deliveries/{{event_id}}"),
    _owned("POST", f"{HOOKS}/deliveries/{{event_id}}/replay", WRITE, f"{HOOKS}/deliveries/{{event_id}}/replay"),
    Route("GET", f"{HOOKS}/destinations", READ),
    Route("POST", f"{HOOKS}/endpoints", WRITE, body={"url": "https://example.org/hook"}),
    Route("GET", f"{HOOKS}/endpoints", READ),
    Route("GET", f"{HOOKS}/secret", READ),
    Route("POST", f"{HOOKS}/secret", WRITE),
    _owned("GET", ENDPOINT, READ, ENDPOINT),
    _owned("PATCH", ENDPOINT, WRITE, ENDPOINT, {"description": "mine now"}),
    _owned("POST", f"{ENDPOINT}/rotate", WRITE, f"{ENDPOINT}/rotate"),
    _owned("POST", f"{ENDPOINT}/disable", WRITE, f"{ENDPOINT}/disable"),
    _owned("POST", f"{ENDPOINT}/enable", WRITE, f"{ENDPOINT}/enable"),
    _owned("DELETE", ENDPOINT, WRITE, ENDPOINT),
]
FILES = [
    Route("GET", "/objects/{key:path}", SIGNED, "/objects/{upload_key}"),
    Route("PUT", "/objects/{key:path}", SIGNED, "/objects/{upload_key}"),
    Route("POST", "/v1/uploads", WRITE, body={"name": "a.txt", "size": 1}),
    _owned("GET", "/v1/uploads/{upload_id}", WRITE, "/v1/uploads/{upload_id}"),
    _owned("POST", "/v1/uploads/{upload_id}/complete", WRITE, "/v1/uploads/{upload_id}/complete"),
    _owned("DELETE", "/v1/uploads/{upload_id}", WRITE, "/v1/uploads/{upload_id}"),
]
OTHERS = [
    Route("GET", "/openapi.json", OPEN),
    Route("GET", "/healthz", OPEN),
    Route("GET", "/readyz", OPEN),
    Route("GET", "/metrics", OPEN),
    Route("GET", "/", PAGE),
    Route("GET", "/studio", PAGE),
    Route("GET", "/studio/{path:path}", PAGE, "/studio/jobs"),
    Route("POST", "/studio/session", SESSION, body={"key": "x"}),
    Route("GET", "/studio/session", SESSION),
    Route("DELETE", "/studio/session", SESSION),
]
ROUTES = [*GATEWAY, *WORKERS, *LIVE, *TRANSCODING, *VIDEOS, *OPERATORS, *WEBHOOKS, *FILES, *OTHERS]
