from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator

import pytest

from callsheet.engine import Engine
from callsheet.vault import Secret, Vault
from callsheet.vault.keys import first_keys
from callsheet.vault.local import LocalKeyring


@pytest.fixture
def secret() -> Secret:
    """Credentials with a word in them that stands nowhere else."""
    keys = {"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": secrets.token_urlsafe(30)}
    return Secret(json.dumps(keys))


@pytest.fixture
async def vault(engine: Engine) -> AsyncIterator[Vault]:
    async with Vault(engine.store, LocalKeyring(first_keys())) as vault:
        yield vault
