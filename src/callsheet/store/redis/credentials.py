"""Encrypted credentials of jobs in Redis: a hash per job with credentials, and a set for each KEK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.job import Credentials, Envelope

from .client import translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .arguments import Argument
    from .client import Client


async def credentials(client: Client, job_ids: Sequence[str]) -> list[Credentials | None]:
    """Return the credentials of jobs, in the order of `job_ids`."""
    found = await client.hashes([client.keys.job(job_id, "credentials") for job_id in job_ids])
    return [_credentials_of(job_id, h) if h else None for job_id, h in zip(job_ids, found, strict=True)]


async def replace_credentials(client: Client, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
    """Replace the credentials of each pair unless the stored ones have changed; return which were replaced."""
    flat: list[Argument] = []
    for was, becomes in changes:
        flat += (was.job_id, was.envelope.credential_version, was.envelope.storage_creds_dek_wrapped)
        flat += becomes.envelope
    return [bool(done) for done in await client.run("replace_credentials", None, *flat)] if flat else []


async def credentials_under(client: Client, kek_id: str, after: str, limit: int) -> list[Credentials]:
    """Return the credentials that a KEK wraps, ordered by job id."""
    key = client.keys.jobs(f"credentials:{kek_id}")
    found: list[Credentials] = []
    while len(found) < limit:
        wanted = limit - len(found)
        with translated():
            ids = await client.redis.zrangebylex(key, f"({after}" if after else "-", "+", 0, wanted)
        rows = await credentials(client, ids)
        found += [c for c in rows if c is not None and c.envelope.storage_creds_kek_id == kek_id]  # not rewrapped since
        if len(ids) < wanted:
            break
        after = ids[-1]
    return found


async def credential_keks(client: Client) -> dict[str, int]:
    """Return how many credentials each KEK wraps."""
    with translated():
        keks = sorted(await client.redis.smembers(client.keys.jobs("credentials")))
        pipe = client.redis.pipeline(transaction=False)
        for kek_id in keks:
            pipe.zcard(client.keys.jobs(f"credentials:{kek_id}"))
        counts = await pipe.execute() if keks else []
    return {kek_id: count for kek_id, count in zip(keks, counts, strict=True) if count}


def _credentials_of(job_id: str, h: Mapping[str, str]) -> Credentials:
    envelope = Envelope(
        int(h["credential_version"]),
        h["storage_creds_encrypted"],
        h["storage_creds_dek_wrapped"],
        h["storage_creds_kek_id"],
        int(h["storage_creds_encryption_version"]),
    )
    return Credentials(job_id, h["requester_id"], envelope)
