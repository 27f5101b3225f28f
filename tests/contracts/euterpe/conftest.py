from __future__ import annotations

import pytest

from tests.contracts.euterpe.kit import KEYS
from tests.media.corpus import Corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(autouse=True)
def _keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_KEYS", KEYS)
    for other in ("CALLSHEET_KEYS_FILE", "CALLSHEET_KMS"):
        monkeypatch.delenv(other, raising=False)
