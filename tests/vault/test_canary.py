"""A word that stands nowhere else goes through the vault; afterwards it is looked for everywhere, in every writing."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import secrets
import sys
import traceback
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from callsheet.cli import logs
from callsheet.engine import Engine
from callsheet.kernel import commands
from callsheet.kernel.job import Job
from callsheet.kernel.retry import JobError
from callsheet.store.postgres import PostgresStore
from callsheet.store.protocol import ClaimRequest, Store
from callsheet.store.redis import RedisStore
from callsheet.store.sqlite import SqliteStore
from callsheet.vault import Opened, Secret, Vault
from callsheet.vault.errors import CredentialRejected
from callsheet.vault.local import LocalKeyring
from callsheet.vault.refresh import Access, Meaning, Patience, Refresher, RefreshRequest
from callsheet.vault.rewrap import rewrap
from tests.store_driver import new_job

log = logging.getLogger("canary")


def writings(word: str) -> Iterator[bytes]:
    """Return the canary word in every encoding."""
    raw = word.encode()
    yield from (raw, raw.hex().encode(), raw.hex().upper().encode())
    yield from (json.dumps(word)[1:-1].encode(), urllib.parse.quote(word, safe="").encode())
    for offset in range(3):
        yield base64.b64encode(bytes(offset) + raw).rstrip(b"=")[4:-1]
        yield base64.urlsafe_b64encode(bytes(offset) + raw).rstrip(b"=")[4:-1]
    half = len(raw) // 2
    yield from (raw[:half][::-1], raw[half:][::-1], raw[::-1])
    yield from (word.encode("utf-16-le"), raw[:half], raw[half:])


def found(word: str, places: dict[str, bytes]) -> list[str]:
    return [place for place, text in places.items() for form in writings(word) if form in text]


async def dump(store: Store) -> bytes:
    """Return a dump of the whole store."""
    match store:
        case SqliteStore():
            text = await store._writer.run(lambda db: "\n".join(db.iterdump()))
            files = Path(store.target.path).parent.glob(f"{Path(store.target.path).name}*")
            return text.encode() + b"".join(file.read_bytes() for file in files)
        case PostgresStore():
            tables = await store._db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            rows = [await store._db.fetch(f"SELECT t::text FROM {name} t") for (name,) in tables]
            return repr(rows).encode()
        case RedisStore():
            return await dump_redis(store)
    raise TypeError(store)


async def dump_redis(store: RedisStore) -> bytes:
    redis = store._client.redis
    readers = {
        "string": redis.get,
        "hash": redis.hgetall,
        "set": redis.smembers,
        "list": lambda key: redis.lrange(key, 0, -1),
        "zset": lambda key: redis.zrange(key, 0, -1, withscores=True),
        "stream": redis.xrange,
    }
    keys = [key async for key in redis.scan_iter(count=1000)]
    return "\n".join([repr((key, await readers[await redis.type(key)](key))) for key in keys]).encode()


def test_the_search_finds_what_it_looks_for() -> None:
    word = "c4nary+/" + secrets.token_urlsafe(24)
    slips = [word, word[::-1], word.encode().hex(), urllib.parse.quote(word, safe=""), json.dumps({"a": word})]
    slips += [
        base64.b64encode(b"user:" + word.encode()).decode(),
        base64.urlsafe_b64encode(b"x" + word.encode()).decode(),
    ]
    for slip in slips:
        assert found(word, {"there": f"some {slip} text".encode()}), slip
    assert not found(word, {"there": b"nothing of it"})


def fall(why: str) -> None:
    raise RuntimeError(why)


def fall_with(opened: Opened, *more: object) -> None:
    """With credentials among its locals, which a debugger or a reporter of errors shows."""
    fall(f"cannot use {opened}")


class Run:
    """One job's whole life with the vault, and all texts that came of it."""

    def __init__(self, engine: Engine, vault: Vault, words: list[str]) -> None:
        self.engine = engine
        self.vault = vault
        self.words = words
        self.texts: list[str] = []

    def credentials(self, n: int) -> Secret:
        return Secret(json.dumps({"secret_access_key": self.words[n], "region": "eu"}))

    async def whole(self) -> Job:
        new = new_job(requester_id="acme", contract="euterpe")
        new = new._replace(credentials=await self.vault.seal(self.credentials(0), new.job_id, "acme"))
        await self.engine.enqueue([new])
        (job,) = await self.engine.claim(ClaimRequest("w"))
        secrets_of_job = await self.vault.open(job)
        self.texts += [repr(new), repr(job), repr(secrets_of_job), f"{secrets_of_job}", str(secrets_of_job.secret)]
        await self.carelessly_fail(job)
        await self.be_refused(job)
        await self.tamper(job)
        self.vault.keyring = LocalKeyring(self.vault.keyring._keys.with_new_key(in_use=True))  # type: ignore[attr-defined]
        await rewrap(self.vault)
        return job

    async def carelessly_fail(self, job: Job) -> None:
        plain = await self.vault.open(job)
        text = plain.secret.reveal_json()["secret_access_key"]
        try:
            fall(f"PUT https://b.s3.example/x?X-Amz-Signature={text} with {text} failed")
        except RuntimeError:
            log.exception("cannot store %s %s", plain, text, extra={"fields": {"key": text, "more": [{"a": text}]}})
        try:
            fall_with(plain, [plain])
        except RuntimeError as error:
            message = traceback.TracebackException.from_exception(error, capture_locals=True)
            (frame,) = [frame for frame in message.stack if frame.name == "fall_with"]
            self.texts.append(repr(frame.locals))

    async def be_refused(self, job: Job) -> None:
        async def send(request: RefreshRequest) -> int:
            self.texts.append(repr((request, request.body())))
            await self.vault.replace(request.job_id, "acme", self.credentials(1))
            return 202

        async def refused(secret: Secret) -> None:
            raise PermissionError(f"403 for {secret.reveal()}")

        patience = Patience(whole_s=5, first_look_s=0.01)
        access = Access(self.vault, Refresher(self.engine, self.vault, send, patience), job, "https://r.example/")
        try:
            await access.run(refused, lambda _: Meaning.REFRESH)
        except CredentialRejected as error:
            self.texts += traceback.format_exception(error)
            log.exception("refused")

    async def tamper(self, job: Job) -> None:
        (credentials,) = await self.vault.store.credentials([job.job_id])
        assert credentials is not None
        moved_row = credentials._replace(requester_id="evil")
        try:
            await self.vault._decrypted_secret(moved_row)
        except Exception as error:
            self.texts += [*traceback.format_exception(error), repr(error.__dict__), repr(error.__context__)]
            log.exception("tampered")


async def test_a_secret_is_nowhere_but_in_memory(engine: Engine, vault: Vault) -> None:
    words = ["c4nary+/" + secrets.token_urlsafe(24) for _ in range(2)]
    out, root = io.StringIO(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    run = Run(engine, vault, words)
    try:
        logs.set_up("json", "debug", out)
        job = await run.whole()
        while_it_runs = await dump(engine.store)
        await engine.settle_one(job, commands.fail(job, JobError("403", "credential rejected"), rand=0.5))
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    events = [repr(event) for event in await engine.store.events({job.job_id: 0}, 100)]
    places = {
        "the store": while_it_runs,
        "the store afterwards": await dump(engine.store),
        "the log": out.getvalue().encode(),
        "texts": "\n".join(run.texts + events).encode(),
        "the command line": Path("/proc/self/cmdline").read_bytes() + Path("/proc/self/environ").read_bytes(),
    }
    assert all(places.values())
    assert len(out.getvalue().splitlines()) >= 3
    (credentials,) = await engine.store.credentials([job.job_id])
    assert credentials is not None
    assert credentials.envelope.storage_creds_dek_wrapped.encode() in while_it_runs, "the dump has no credentials in it"
    for word in words:
        assert found(word, places) == []


@pytest.mark.parametrize("command", ["status", "rewrap"])
async def test_keys_are_in_no_output_of_the_command_line(command: str, tmp_path: Path) -> None:
    """Its arguments are clean as well: they come by file or variable."""
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "callsheet.cli", "vault", command),
        env={"PYTHONPATH": str(Path("src").absolute()), "CALLSHEET_KEYS": f"k1 {key}", "PATH": "/usr/bin"}
        | {"CALLSHEET_DATABASE_URL": "sqlite::memory:"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=tmp_path,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    assert key.encode() not in output
    assert b"k1" in output
