"""The vault: seals the credentials of jobs, and opens them for the worker that holds the job's claim."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Self

from opentelemetry import metrics

from callsheet.engine.resuming import first_of
from callsheet.kernel.errors import DocumentConflict, StaleClaim
from callsheet.kernel.job import Credentials, Envelope, Job, Status
from callsheet.store.protocol import Document

from . import envelope
from .envelope import Binding
from .errors import CredentialsConflict, CredentialsGone, InvalidKeyring, NoKeyring, Tampered
from .keyring import ADVICE
from .secret import Secret

if TYPE_CHECKING:
    from types import TracebackType

    from callsheet.store.protocol import Store

    from .keyring import Keyring


KIND = "vault_wraps"
RESERVE = 4096
WARN_AT = 2**30
log = logging.getLogger("callsheet.vault")
_wraps = metrics.get_meter("callsheet").create_counter(
    "callsheet.vault.wraps", "{wrap}", "Data keys that a KEK has wrapped, by its id"
)


class Wraps:
    """Counts the wraps of this process per KEK, in one store."""

    def __init__(self, store: Store, *, batch: int = RESERVE, warn_at: int = WARN_AT) -> None:
        self._store = store
        self._batch = batch
        self._warn_at = warn_at
        self._left: dict[str, int] = {}

    async def count(self, kek_id: str) -> None:
        """Count one wrap; every 4,096th wrap writes a new reservation to the store."""
        _wraps.add(1, {"kek": kek_id})
        while self._left.get(kek_id, 0) < 1:
            await self._reserve(kek_id)
        self._left[kek_id] -= 1

    async def _reserve(self, kek_id: str) -> None:
        documents = await self._store.documents(KIND, kek_id)
        document = documents[0] if documents else Document(KIND, kek_id, "0", 0)
        total = json.loads(document.body) + self._batch
        try:
            await self._store.put_document(document._replace(body=json.dumps(total)))
        except DocumentConflict:
            return  # another process reserved at the same moment: look again
        self._left[kek_id] = self._left.get(kek_id, 0) + self._batch
        if total >= self._warn_at:
            log.warning("key %s has wrapped %d times; rotate: `callsheet vault rotate`, then `rewrap`", kek_id, total)


async def totals(store: Store) -> dict[str, int]:
    """Return an upper bound of each KEK's wraps, over all processes and restarts."""
    return {document.id: json.loads(document.body) for document in await store.documents(KIND)}


RACES = 10  # how often a replacement may find its credentials wrapped anew before it gives up


class Opened(NamedTuple):
    """Decrypted credentials and their version."""

    secret: Secret
    credential_version: int


class Vault:
    """Seals and opens the credentials of one store's jobs with one keyring. `async with` closes the keyring."""

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self.store = store
        self.keyring = keyring
        self._wraps = Wraps(store)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.keyring.close()

    async def seal(self, secret: Secret, job_id: str, requester_id: str, credential_version: int = 1) -> Envelope:
        """Encrypt a secret for `NewJob.credentials`; the envelope is bound to this job, requester and version."""
        binding = Binding(job_id, requester_id, credential_version)
        dek = envelope.new_dek()
        wrapping = await self.keyring.wrap(dek, binding)
        await self._wraps.count(wrapping.kek_id)
        return Envelope(
            credential_version,
            envelope.encrypt(secret, dek, binding),
            envelope.to_text(wrapping.wrapped),
            wrapping.kek_id,
            envelope.VERSION,
        )

    async def open(self, job: Job) -> Opened:
        """Decrypt the job's credentials for the worker that holds its claim; raises StaleClaim or a VaultError."""
        (now,) = await self.store.get([job.job_id])
        if now is None or now.status is not Status.RUNNING or now.claim_version != job.claim_version:
            raise StaleClaim(f"claim {job.claim_version} of job {job.job_id} is not held; its credentials stay shut")
        credentials = await self._credentials(job.job_id, now.requester_id)
        return Opened(await self._decrypted_secret(credentials), credentials.envelope.credential_version)

    async def version(self, job_id: str) -> int:
        """Return the version of a job's credentials without decrypting them; 0 for a job without credentials."""
        (credentials,) = await self.store.credentials([job_id])
        return credentials.envelope.credential_version if credentials is not None else 0

    async def replace(
        self, job_id: str, requester_id: str, secret: Secret, *, expected_version: int | None = None
    ) -> int:
        """Replace a job's credentials and return the new version, one higher.

        Raises CredentialsConflict if the stored version differs from `expected_version`.
        """
        for _ in range(RACES):
            was = await self._credentials(job_id, requester_id)
            version = was.envelope.credential_version
            if expected_version not in (None, version):
                raise CredentialsConflict(f"the credentials of job {job_id} are at version {version} by now")
            first = await first_of(self.store, job_id)
            becomes = was._replace(envelope=await self.seal(secret, first, requester_id, version + 1))
            (is_replaced,) = await self.store.replace_credentials([(was, becomes)])
            if is_replaced:
                return version + 1
        raise CredentialsConflict(f"the credentials of job {job_id} changed {RACES} times meanwhile; try again")

    async def rewrap(self, credentials: Credentials) -> Credentials:
        """Return the credentials with their data key wrapped under the current KEK, without decrypting the content."""
        binding = await self._binding(credentials)
        was = credentials.envelope
        dek = await self._dek(was, binding)
        wrapping = await self.keyring.wrap(dek, binding)
        await self._wraps.count(wrapping.kek_id)
        text = envelope.to_text(wrapping.wrapped)
        return credentials._replace(
            envelope=was._replace(storage_creds_dek_wrapped=text, storage_creds_kek_id=wrapping.kek_id)
        )

    async def _credentials(self, job_id: str, requester_id: str) -> Credentials:
        (credentials,) = await self.store.credentials([job_id])
        if credentials is None or credentials.requester_id != requester_id:
            raise CredentialsGone(f"job {job_id} has no credentials, or none any more")
        return credentials

    async def _decrypted_secret(self, credentials: Credentials) -> Secret:
        was = credentials.envelope
        if was.storage_creds_encryption_version != envelope.VERSION:
            raise Tampered(
                f"envelopes of version {was.storage_creds_encryption_version} are not known; upgrade callsheet"
            )
        binding = await self._binding(credentials)
        return envelope.decrypt(was.storage_creds_encrypted, await self._dek(was, binding), binding)

    async def _dek(self, sealed_envelope: Envelope, binding: Binding) -> bytes:
        raw = envelope.from_text(sealed_envelope.storage_creds_dek_wrapped)
        return await self.keyring.unwrap(sealed_envelope.storage_creds_kek_id, raw, binding)

    async def _binding(self, credentials: Credentials) -> Binding:
        """Return the credentials' binding; a replayed job's credentials stay bound to the original dead letter."""
        first = await first_of(self.store, credentials.job_id)
        return Binding(first, credentials.requester_id, credentials.envelope.credential_version)


def keyring_from(environ: Mapping[str, str]) -> Keyring:
    """Open the configured keyring; raises NoKeyring or InvalidKeyring. The first of three variables wins.

    `CALLSHEET_KMS` names a key service (`aws`, `vault`: see kms.py and transit.py), `CALLSHEET_KEYS_FILE` names a file,
    `CALLSHEET_KEYS` holds a keyring's text.
    """
    if service := environ.get("CALLSHEET_KMS", "").strip():
        return _service(service, environ)
    from .local import FileKeyring, LocalKeyring  # noqa: PLC0415 - a service needs none of it

    if path := environ.get("CALLSHEET_KEYS_FILE", "").strip():
        return FileKeyring(path)
    if text := environ.get("CALLSHEET_KEYS", "").strip():
        return LocalKeyring.from_text(text)
    raise NoKeyring(f"there are no keys for secrets: {ADVICE}")


def _service(text: str, environ: Mapping[str, str]) -> Keyring:
    kind, _, rest = text.partition(":")
    if kind == "aws" and rest:
        from .kms import AwsKeyring  # noqa: PLC0415 - loads httpx2

        return AwsKeyring.from_environment(rest, environ)
    if kind == "vault" and rest:
        from .transit import TransitKeyring  # noqa: PLC0415

        return TransitKeyring.from_environment(rest, environ)
    raise InvalidKeyring(
        "CALLSHEET_KMS must be aws:KEY (a key's ARN or alias) or vault:MOUNT/KEY, such as vault:transit/callsheet"
    )
