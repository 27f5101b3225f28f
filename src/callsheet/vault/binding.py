"""What a piece of ciphertext belongs to. Both layers of an envelope are bound to it: a moved row does not open."""

from __future__ import annotations

from typing import NamedTuple


class Binding(NamedTuple):
    """One version of the credentials of one job of one requester."""

    job_id: str
    requester_id: str
    credential_version: int

    def aad(self, purpose: str, *more: str) -> bytes:
        """Associated data: each part behind its length, so that no two lists of parts read the same."""
        parts = ("callsheet", purpose, self.job_id, self.requester_id, str(self.credential_version), *more)
        return b"".join(len(raw).to_bytes(4, "big") + raw for raw in (part.encode() for part in parts))

    def context(self) -> dict[str, str]:
        """The same for a key service that takes names and values and writes them into its audit trail."""
        return {
            "callsheet": "dek",
            "job_id": self.job_id,
            "requester_id": self.requester_id,
            "credential_version": str(self.credential_version),
        }
