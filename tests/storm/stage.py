"""A storm's stage: real servers, lines to them, and the processes, all on loopback and all gone at the end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from callsheet.app.sealing import VaultSealer
from callsheet.engine import Engine
from callsheet.http.keys import ApiKeys
from callsheet.outbox import Endpoints
from callsheet.vault.keys import first_keys
from callsheet.vault.local import LocalKeyring
from tests import binaries
from tests.outbox.sink import RULES
from tests.seaweed import ADMIN, BUCKET, REGION, S3Server
from tests.server_process import free_port
from tests.servers import PostgresServer, RedisServer
from tests.storm.machine import Clock, Disk
from tests.storm.orders import REQUESTER
from tests.storm.plan import Plan
from tests.storm.processes import House, Part
from tests.storm.proxy import Lines

ADMIN_KEY = "admin-key-of-the-storm"
LEASE = "3s"


class Server(NamedTuple):
    """A third-party server: functions that kill and restart it."""

    crash: Callable[[], None]
    start_again: Callable[[], None]


class Stage:
    """Everything that one storm runs on. `with stage(plan, folder) as …` makes it and takes it away."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.url = ""
        self.s3_url = ""
        self.servers: dict[str, Server] = {}
        self.lines = Lines()
        self.keys = first_keys().text()
        self.secrets: list[str] = [ADMIN_KEY, ADMIN.secret_access_key]
        self.house: House
        self.disk: Disk
        self.clock: Clock
        self.ports = {name: free_port() for name in plan.crew.parts["server"]}
        self.hook_port = free_port()

    def url_of(self, part: str) -> str:
        """Return the store's URL for a part, through the part's line."""
        if self.plan.store == "sqlite":
            return self.url
        place = urlsplit(self.url)
        port = self.lines.open(f"{part}>store", place.hostname or "", place.port or 0)
        return place._replace(netloc=place.netloc.replace(f":{place.port}", f":{port}")).geturl()

    async def prepare(self) -> None:
        """Create the schema, a key and the webhook secret; write settings for producers and watchers."""
        engine = Engine.from_url(self.url)
        await engine.store.migrate()
        async with engine:
            key, _ = await ApiKeys(engine.store).create("storm", requester_id=REQUESTER, rate=100_000)
            endpoints = Endpoints(engine.store, VaultSealer(LocalKeyring.from_text(self.keys)), RULES)
            _, secret = await endpoints.new_own_secret(REQUESTER)
        self.secrets += [key, secret]
        (self.folder / "secret").write_text(secret)
        doors = [self.lines.open(f"people>{name}", "127.0.0.1", port) for name, port in self.ports.items()]
        known_names = {
            "seed": self.plan.seed,
            "jobs": self.plan.jobs,
            "longest_ms": self.plan.longest_ms,
            "pause_s": 0.1 if self.plan.jobs is None else 0.02,
            "urls": [f"http://127.0.0.1:{port}" for port in doors],
            "key": key,
            "hook": f"http://127.0.0.1:{self.hook_port}/hook",
        }
        (self.folder / "people.json").write_text(json.dumps(known_names))

    def begin(self) -> None:
        """Start all processes."""
        parts = self.plan.crew.parts
        self.house.add(Part("receiver", ["tests.storm.receivers", str(self.hook_port)]))
        for name in parts["server"]:
            self.house.add(self._server(name))
        for name in parts["worker"]:
            self.house.add(self.worker(name))
        for number, name in enumerate(parts["remote"]):
            self.house.add(self.remote(name, list(self.ports.values())[number % len(self.ports)]))
        self.house.add(Part("http-producer", ["tests.storm.producers", "http"], ends=True))
        url = {"CALLSHEET_DATABASE_URL": self.url_of("python-producer")}
        self.house.add(Part("python-producer", ["tests.storm.producers", "python"], url, ends=True))
        self.house.add(Part("watcher", ["tests.storm.watchers"], ends=True))

    def _server(self, name: str) -> Part:
        options = ["--port", str(self.ports[name]), "--log-level", "warning", "--webhook-http"]
        reach = ["--webhook-networks", "127.0.0.0/8", "--webhook-ports", str(self.hook_port)]
        variables = {"CALLSHEET_DATABASE_URL": self.url_of(name), "CALLSHEET_API_KEY": ADMIN_KEY}
        return Part(name, ["tests.storm.serve", *options, *reach], variables)

    def worker(self, name: str) -> Part:
        """Return a worker beside the store."""
        options = ["--lease", LEASE, "--concurrency", "4", "--poll", "500ms", "--drain", "10s", "--grace", "3s"]
        place = ["--workspaces", str(self.disk.root / "work-local"), "--queues", "default,films"]
        command = ["callsheet.cli", "worker", "tests.storm.tasks:app", "--log-level", "warning"]
        variables = {"CALLSHEET_DATABASE_URL": self.url_of(name)}
        return Part(name, [*command, *options, *place], variables)

    def remote(self, name: str, port: int) -> Part:
        """Return a worker that speaks only HTTP."""
        line = self.lines.open(f"{name}>server", "127.0.0.1", port)
        options = ["--url", f"http://127.0.0.1:{line}", "--concurrency", "3", "--claim-wait", "2s", "--drain", "10s"]
        place = ["--workspaces", str(self.disk.root / "work-remote"), "--queues", "default", "--grace", "3s"]
        command = ["callsheet.cli", "worker", "tests.storm.tasks:app", "--log-level", "warning"]
        return Part(name, [*command, *options, *place], {"CALLSHEET_TOKEN": ADMIN_KEY})

    @property
    def variables(self) -> dict[str, str]:
        """The environment that all processes share."""
        return {
            "CALLSHEET_KEYS": self.keys,
            "CALLSHEET_CATALOG_URL": "off",
            "CALLSHEET_OBJECTS_URL": f"s3://{BUCKET}/storm-{self.folder.name}",
            "S3_ENDPOINT": self.s3_url,
            "S3_REGION": REGION,
            "S3_ACCESS_KEY_ID": ADMIN.access_key_id,
            "S3_SECRET_ACCESS_KEY": ADMIN.secret_access_key,
            "STORM_DISK": "" if self.disk.is_mounted else str(self.disk.flag),
            **(self.clock.of_processes if self.plan.store == "sqlite" else {}),
        }

    def start_store(self, stack: contextlib.ExitStack) -> None:
        """Start the store's server, if any, under the storm's clock."""
        with _environment(self.clock.of_servers):
            match self.plan.store:
                case "postgres":
                    postgres = stack.enter_context(PostgresServer.start(settings={"shared_buffers": "64MB"}))
                    self.url, self.servers["store"] = (
                        postgres.create_database(),
                        Server(postgres.kill, postgres.start_again),
                    )
                case "redis":
                    redis = stack.enter_context(RedisServer.start(settings={"appendfsync": "always"}))
                    self.url, self.servers["store"] = redis.fresh_url(), Server(redis.kill9, redis.start_again)
                case _:
                    self.url = f"sqlite:///{self.disk.root / 'jobs.db'}"

    def start_s3(self, stack: contextlib.ExitStack, shared: S3Server | None) -> None:
        """Start S3, or use the tests' own, and open its line."""
        s3 = shared or stack.enter_context(S3Server.start())
        if shared is None:
            self.servers["s3"] = Server(s3._own.kill, s3.start_again)
        place = urlsplit(s3.endpoint)
        self.s3_url = f"http://127.0.0.1:{self.lines.open('worker>s3', place.hostname or '', place.port or 0)}"


@contextlib.contextmanager
def stage(plan: Plan, folder: Path, *, s3: S3Server | None = None, library: Path | None = None) -> Iterator[Stage]:
    """Build the stage of a plan. `s3` is a storage that is not to be killed, `library` libfaketime."""
    storm_stage = Stage(plan, folder)
    clock = Path(tempfile.mkdtemp(prefix="callsheet-storm-", dir=binaries.shared_directory()))
    clock.chmod(0o755)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, clock, ignore_errors=True)
        storm_stage.clock = Clock(clock, library)
        storm_stage.disk = Disk(folder, mounts=plan.unit == "seconds")
        stack.callback(storm_stage.disk.close)
        stack.enter_context(storm_stage.lines)
        storm_stage.start_store(stack)
        storm_stage.start_s3(stack, s3)
        storm_stage.house = stack.enter_context(House(folder, storm_stage.variables))
        yield storm_stage


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for what is started within."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
