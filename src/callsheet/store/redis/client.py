"""The store's Redis client: the connection, the scripts, and the translation of errors."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import hiredis
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from callsheet.kernel.contracts import CALLSHEET, EXPIRING, FOREIGN
from callsheet.kernel.durations import seconds
from callsheet.kernel.errors import (
    CallsheetError,
    InvalidInput,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UnknownStore,
    is_from_driver,
)

from .keys import Keys

if TYPE_CHECKING:
    from .arguments import Argument

log = logging.getLogger(__name__)

OLDEST = (6, 2)
JOB_TTL_S = 86_400
JOB_TTL_VARIABLES = ("CALLSHEET_JOB_TTL", "JOB_TTL_S")
IN_SCRIPT = "local JOB_TTL_S = '86400'"
EXPIRES = ", ".join(f"{name} = true" for name in sorted(EXPIRING))
CONTRACTS_IN_SCRIPT = f"local OWN, FOREIGN, EXPIRES = '{CALLSHEET.name}', '{FOREIGN}', {{{EXPIRES}}}"
SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis"}
DRIVER_OPTIONS = ("socket_timeout", "socket_connect_timeout", "max_connections", "health_check_interval", "db")
REFUSALS = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
OF_THE_COMMAND = frozenset({"ERR", "WRONGTYPE", "NOSCRIPT", "EXECABORT", "CROSSSLOT", "NOGROUP", "BUSYGROUP"})
WITHIN_A_SCRIPT = re.compile(  # an error inside a script, for servers that wrap the error's code in their own text
    r"(?:^|[ :-])(?:BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY) "
).search


class Target(NamedTuple):
    """The address of a Redis store and its options."""

    url: str
    keys: Keys
    foreign_idle_ms: int = 60_000
    job_ttl_s: int = JOB_TTL_S

    @classmethod
    def from_url(cls, url: str, environ: Mapping[str, str] | None = None) -> Self:
        """Parse `redis://…?prefix={cs0}:&foreign_idle_ms=60000&job_ttl_s=86400`; raises UnknownStore.

        The driver gets all other options. `job_ttl_s` applies to foreign jobs without a TTL; its default is the
        gateway's setting.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        prefix = options.pop("prefix", "")
        idle_ms = options.pop("foreign_idle_ms", "60000")
        ttl_s = options.pop("job_ttl_s", "") or str(_job_ttl_s(os.environ if environ is None else environ))
        unknown = [name for name in options if name not in DRIVER_OPTIONS and not name.startswith("ssl_")]
        if unknown or not (idle_ms + ttl_s).isdecimal() or int(ttl_s) == 0 or parts.scheme not in SCHEMES:
            names = ", ".join(("prefix", "foreign_idle_ms", "job_ttl_s", *DRIVER_OPTIONS))
            raise UnknownStore(f"the Redis URL has an option or value that is not known; options are {names}")
        plain = parts._replace(scheme=SCHEMES[parts.scheme], query=urlencode(options)).geturl()
        return cls(plain, Keys(prefix), int(idle_ms), int(ttl_s))


def _job_ttl_s(environ: Mapping[str, str]) -> int:
    """Return the gateway's TTL setting, parsed as its server does; raises UnknownStore."""
    name = next((name for name in JOB_TTL_VARIABLES if environ.get(name)), None)
    try:
        return JOB_TTL_S if name is None else max(1, round(seconds(environ[name])))
    except InvalidInput as error:
        raise UnknownStore(f"{name}: {error}") from None


def _pack(args: tuple[Any, ...]) -> list[bytes]:
    """Return the command in its wire format."""
    return [hiredis.pack_command(args)]


class _Connection(Connection):
    """Write script arguments with hiredis: the driver's own loop took half of the client's time."""

    def pack_command(self, *args: Any) -> list[bytes]:
        return _pack(args) if args[0] == "EVALSHA" else super().pack_command(*args)


class _SSLConnection(SSLConnection):
    """Write script arguments with hiredis, over TLS."""

    def pack_command(self, *args: Any) -> list[bytes]:
        return _pack(args) if args[0] == "EVALSHA" else super().pack_command(*args)


def write_with_hiredis(pool: BlockingConnectionPool) -> None:
    """Make a pool's future connections write script arguments with hiredis, which is faster."""
    tls = issubclass(pool.connection_class, SSLConnection)
    pool.connection_class = _SSLConnection if tls else _Connection


class Client:
    """Run scripts by their hash, loading scripts that the server has lost."""

    def __init__(self, target: Target) -> None:
        self.keys = target.keys
        self._job_ttl_s = target.job_ttl_s
        pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
            target.url,
            decode_responses=True,
            encoding_errors="replace",
            protocol=2,
            # The driver must not repeat a write whose answer was lost: most scripts are not idempotent.
            retry=Retry(NoBackoff(), 0),
            **_defaults(target.url),
        )
        write_with_hiredis(pool)
        self.redis: Any = Redis.from_pool(pool)  # the driver's types mix its sync and async answers
        db = int(pool.connection_kwargs.get("db") or 0)
        self.channel = self.keys.jobs(f"hints:{db}" if db else "hints")

    async def run(self, verb: str, now: int | None, *arguments: Argument) -> Any:
        """Run the verb's script in one round trip; raises StoreError."""
        source, sha = script_of(verb, self._job_ttl_s)
        head = (1, self.keys.prefix, self.channel, "" if now is None else now)
        with translated():
            try:
                return await self.redis.execute_command("EVALSHA", sha, *head, *arguments)
            except exceptions.NoScriptError:
                await self.redis.script_load(source)
                return await self.redis.execute_command("EVALSHA", sha, *head, *arguments)

    async def hashes(self, keys: list[str]) -> list[dict[str, str]]:
        """Return many hashes, 1,000 per round trip; an empty dict for each missing hash."""
        hashes: list[dict[str, str]] = []
        with translated():
            for i in range(0, len(keys), 1_000):
                pipe = self.redis.pipeline(transaction=False)
                for key in keys[i : i + 1_000]:
                    pipe.hgetall(key)
                hashes += await pipe.execute()
        return hashes

    async def check_version(self) -> None:
        """Raise StoreError if the server is too old."""
        with translated():
            info = await self.redis.info("server")
        version = str(info["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise StoreError(f"Redis {version} is too old: 6.2 or newer, or Valkey, is needed")

    async def durability(self) -> str:
        """Return the server's durability in one line; log a warning if the server may lose acknowledged jobs."""
        settings: dict[str, str] = {}
        try:
            for name in ("appendonly", "appendfsync", "maxmemory-policy"):
                settings.update(await self.redis.config_get(name))
        except exceptions.RedisError:
            return "Redis, durability unknown (CONFIG is forbidden)"
        if (policy := settings.get("maxmemory-policy")) != "noeviction":
            log.warning("Redis may evict jobs when memory is full: set maxmemory-policy noeviction, it is %s", policy)
        if settings.get("appendonly") != "yes":
            log.warning("Redis has no append-only file: acknowledged jobs are lost when it stops; set appendonly yes")
            return "Redis, memory only (appendonly=no)"
        return f"Redis, append-only file, appendfsync={settings.get('appendfsync')}"

    async def close(self) -> None:
        """Close every connection."""
        with contextlib.suppress(exceptions.RedisError, OSError):
            await self.redis.aclose()
            await self.redis.connection_pool.disconnect()


def _defaults(url: str) -> dict[str, Any]:
    """Return driver settings for options that the URL does not give."""
    options = dict(parse_qsl(urlsplit(url).query))
    defaults: dict[str, Any] = {
        "socket_timeout": 10.0,
        "socket_connect_timeout": 5.0,
        "socket_keepalive": True,
        "health_check_interval": 30,
        "max_connections": 32,
    }
    return {name: value for name, value in defaults.items() if name not in options}


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Translate the driver's errors to store errors."""
    try:
        yield
    except REFUSALS as error:
        raise StoreRefused(f"Redis does not let this user in: {error}") from error
    except (exceptions.RedisError, OSError) as error:
        if _is_about_command(error):
            raise StoreError(f"Redis refused a command: {error}") from error
        raise StoreUnavailable(f"Redis cannot serve now ({type(error).__name__}: {error}); try again later") from error
    except CallsheetError:
        raise
    except Exception as error:
        if not is_from_driver(error, "redis"):
            raise
        raise StoreUnavailable(f"the connection to Redis broke ({type(error).__name__}: {error}); try again") from error


def _is_about_command(error: Exception) -> bool:
    """Return whether the error lies in the command itself, rather than in the server's state or the network."""
    if isinstance(error, exceptions.DataError):
        return True
    if not isinstance(error, exceptions.ResponseError):
        return False
    code = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    return code in OF_THE_COMMAND and not WITHIN_A_SCRIPT(str(error))


@cache
def script_of(verb: str, job_ttl_s: int = JOB_TTL_S) -> tuple[str, str]:
    """Return a verb's script, preceded by the files of its `-- needs:` line, and the script's hash."""
    folder = files("callsheet.store.redis").joinpath("scripts")
    text = folder.joinpath(f"{verb}.lua").read_text("utf-8")
    needs = text.partition("\n")[0].removeprefix("-- needs:").split()
    source = "\n".join(
        [CONTRACTS_IN_SCRIPT, *(folder.joinpath(f"{name}.lua").read_text("utf-8") for name in needs), text]
    )
    source = source.replace(IN_SCRIPT, IN_SCRIPT.replace(str(JOB_TTL_S), str(job_ttl_s)))
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
