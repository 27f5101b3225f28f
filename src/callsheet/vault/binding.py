"""The identity of a ciphertext. Both layers of an envelope are bound to it, so that a moved row does not decrypt."""

from __future__ import annotations

from typing import NamedTuple


class Binding(NamedTuple):
    """The job, requester and credential version of an envelope."""

    job_id: str
    requester_id: str
    credential_version: int

    def aad(self, purpose: str, *more: str) -> bytes:
        """Return the associated data: a length prefix before each part makes the encoding unambiguous."""
        parts = ("callsheet", purpose, self.job_id, self.requester_id, str(self.credential_version), *more)
        return b"".join(len(raw).to_bytes(4, "big") + raw for raw in (part.encode() for part in parts))

    def context(self) -> dict[str, str]:
        """Return the binding as names and values, for a key service that writes them into its audit trail."""
        return {
            "callsheet": "dek",
            "job_id": self.job_id,
            "requester_id": self.requester_id,
            "credential_version": str(self.credential_version),
        }
