"""Re-wrapping data keys under the current KEK during normal operation. The content is never decrypted.

The rows are the only state: each row is under its old KEK or under the current KEK, so a killed run is repeated from
the start. A row that a writer replaced meanwhile is skipped: that writer used the current KEK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from .errors import RetiredKek, Tampered, UnknownKek

if TYPE_CHECKING:
    from callsheet.kernel.job import Credentials

    from .vault import Vault

BATCH = 200
AT_ONCE = 16  # a key service is asked for so many at a time
PASSES = 5


class Progress(NamedTuple):
    """The row counts of a re-wrap. `broken` rows cannot be unwrapped with this keyring."""

    total: int = 0
    wrapped: int = 0
    changed: int = 0
    broken: int = 0

    @property
    def done(self) -> int:
        """The number of processed rows."""
        return self.wrapped + self.changed + self.broken


async def rewrap(
    vault: Vault, on_progress: Callable[[Progress], None] = lambda _: None, *, batch: int = BATCH
) -> tuple[Progress, dict[str, str]]:
    """Re-wrap all credentials under the current KEK; return the counts, and the errors of broken rows by job id.

    Repeats, five times at most, while rows under other KEKs appear: a process with an old keyring may write such rows.
    """
    errors: dict[str, str] = {}
    progress = Progress()
    for _ in range(PASSES):
        current = await vault.keyring.current()
        old = {kek_id: count for kek_id, count in (await vault.store.credential_keks()).items() if kek_id != current}
        if sum(old.values()) <= len(errors):
            break
        progress = progress._replace(total=progress.done + sum(old.values()) - len(errors))
        on_progress(progress)
        for kek_id in old:
            progress = await _walk(vault, kek_id, _Walk(progress, errors, on_progress, batch))
    return progress, errors


class _Walk(NamedTuple):
    progress: Progress
    broken: dict[str, str]
    on_progress: Callable[[Progress], None]
    batch: int


async def _walk(vault: Vault, kek_id: str, walk: _Walk) -> Progress:
    """Re-wrap all credentials under one KEK, page by page."""
    progress, after = walk.progress, ""
    while page := await vault.store.credentials_under(kek_id, after=after, limit=walk.batch):
        after = page[-1].job_id
        page = [row for row in page if row.job_id not in walk.broken]
        changes, faults = await _changes(vault, page)
        walk.broken.update(faults)
        count = sum(await vault.store.replace_credentials(changes))
        progress = progress._replace(
            wrapped=progress.wrapped + count,
            changed=progress.changed + len(changes) - count,
            broken=len(walk.broken),
        )
        walk.on_progress(progress)
    return progress


async def _changes(
    vault: Vault, page: list[Credentials]
) -> tuple[list[tuple[Credentials, Credentials]], dict[str, str]]:
    """Return the replacements for a page of credentials, and the errors of broken rows by job id."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(credentials: Credentials) -> Credentials | str:
        async with gate:
            try:
                return await vault.rewrap(credentials)
            except (Tampered, UnknownKek, RetiredKek) as error:
                return str(error)

    answers = list(zip(page, await asyncio.gather(*(one(row) for row in page)), strict=True))
    changes = [(row, answer) for row, answer in answers if not isinstance(answer, str)]
    return changes, {row.job_id: answer for row, answer in answers if isinstance(answer, str)}
