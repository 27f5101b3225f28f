"""Re-wrapping the secrets of webhook endpoints and of the system under the current KEK during normal operation.

`vault.rewrap` re-wraps credentials. Each document is under its old KEK or under the current KEK, so a killed run is
repeated from the start. A document that another writer changed meanwhile is read again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from callsheet.engine.system_secrets import PLACES, Place, sealed_text, system_secret, with_sealed
from callsheet.kernel.errors import DocumentConflict
from callsheet.outbox.endpoints import Endpoint, SealedSecret, every, owner_of, save
from callsheet.vault.errors import RetiredKek, Tampered, UnknownKek
from callsheet.vault.rewrap import Progress
from callsheet.vault.vault import Wraps

from .sealing import VaultSealer, kek_of

if TYPE_CHECKING:
    from callsheet.store.protocol import Store
    from callsheet.vault import Keyring

RACES = 10


async def webhook_keks(store: Store) -> dict[str, int]:
    """Return the number of endpoint secrets per KEK."""
    return Counter(kek_of(secret.sealed) for endpoint in await every(store) for secret in endpoint.secrets)


async def rewrap_webhooks(store: Store, keyring: Keyring) -> tuple[Progress, dict[str, str]]:
    """Re-wrap all endpoint secrets under the current KEK; return the counts, and the errors by endpoint id."""
    walk = _Walk(store, keyring)
    for endpoint in await every(store):
        await walk.bring(endpoint.endpoint_id)
    done, races, failures = walk.rewrap_count, walk.race_count, len(walk.faults)
    return Progress(done + races + failures, done, races, failures), walk.faults


class _Walk:
    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store, self._keyring = store, keyring
        self._sealer, self._wraps = VaultSealer(keyring), Wraps(store)
        self.rewrap_count = self.race_count = 0
        self.faults: dict[str, str] = {}

    async def bring(self, endpoint_id: str) -> None:
        """Re-wrap one endpoint's secrets, with retries after conflicting writes."""
        for _ in range(RACES):
            endpoints = await every(self._store, endpoint_id)
            if not endpoints:
                return  # deleted meanwhile
            secrets = [await self._bring_secret(endpoints[0], secret) for secret in endpoints[0].secrets]
            count = sum(new is not old for new, old in zip(secrets, endpoints[0].secrets, strict=True))
            if not count:
                return
            try:
                await save(self._store, endpoints[0]._replace(secrets=tuple(secrets)))
            except DocumentConflict:
                continue
            self.rewrap_count += count
            return
        self.race_count += 1

    async def _bring_secret(self, endpoint: Endpoint, secret: SealedSecret) -> SealedSecret:
        current = await self._keyring.current()
        if kek_of(secret.sealed) == current:
            return secret
        owner = owner_of(endpoint.endpoint_id, secret.secret_id)
        try:
            new_text = await self._sealer.rewrapped(secret.sealed, owner=owner, requester_id=endpoint.requester_id)
        except (Tampered, UnknownKek, RetiredKek) as error:
            self.faults[endpoint.endpoint_id] = str(error)
            return secret
        await self._wraps.count(current)
        return secret._replace(sealed=new_text)


async def system_keks(store: Store) -> dict[str, int]:
    """Return the number of system secrets per KEK, without unencrypted secrets."""
    documents = [document for place in PLACES for document in await store.documents(place.kind, place.name)]
    return Counter(kek_of(text) for text in map(sealed_text, documents) if text is not None)


async def keks_in_use(store: Store) -> dict[str, int]:
    """Return the number of envelopes per KEK: credentials, endpoint secrets and system secrets."""
    counts = (await store.credential_keks(), await webhook_keks(store), await system_keks(store))
    return sum(map(Counter, counts), Counter[str]())


async def rewrap_system(store: Store, keyring: Keyring) -> tuple[int, dict[str, str]]:
    """Re-wrap or seal all system secrets under the current KEK; return their number, and the errors by owner."""
    wrapped, faults = 0, {}
    for place in PLACES:
        try:
            wrapped += await _rewrap_place(store, keyring, place)
        except (Tampered, UnknownKek, RetiredKek) as error:
            faults[place.owner] = str(error)
    return wrapped, faults


async def _rewrap_place(store: Store, keyring: Keyring, place: Place) -> bool:
    sealer = VaultSealer(keyring)
    for _ in range(RACES):
        documents = await store.documents(place.kind, place.name)
        if not documents:
            return False
        if (old_text := sealed_text(documents[0])) is None:
            await system_secret(store, place, sealer)  # seals it
            return True
        if kek_of(old_text) == await keyring.current():
            return False
        try:
            new_text = await sealer.rewrapped(old_text, owner=place.owner, requester_id="")
            await store.put_document(with_sealed(documents[0], new_text))
        except DocumentConflict:
            continue
        await Wraps(store).count(await keyring.current())
        return True
    return False
