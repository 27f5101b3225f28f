"""The error classes of the vault, as one tree. No message contains any part of a secret.

CallsheetError
├── VaultError
│   ├── NoKeyring            no keyring is configured, or its file cannot be read
│   ├── InvalidKeyring       the keyring's configuration or text is invalid
│   ├── UnknownKek           the keyring has no such key (perhaps not yet)
│   ├── RetiredKek           the key is below the keyring's minimum, or disabled in its service
│   ├── Tampered             an envelope was changed, or sealed for another job, requester or version
│   ├── CredentialsGone      the job has none (any more)
│   ├── CredentialsConflict  another writer replaced them first
│   ├── CredentialRejected   storage refuses the credentials, and a refresh failed or is impossible
│   └── RefreshFailed        the requester sent no newer credentials in time
└── StoreUnavailable
    └── KeyServiceUnavailable
        └── KeyServiceRefused    also an InvalidKeyring
"""

from __future__ import annotations

from callsheet.kernel.errors import CallsheetError, InvalidInput, Outage, StoreUnavailable


class VaultError(CallsheetError):
    """A secret cannot be sealed or opened."""

    code = "vault_error"


class NoKeyring(VaultError, InvalidInput):
    """No keyring is configured, or its file cannot be read."""

    code = "no_keyring"
    public = (
        "this server has no keys for secrets; its operator sets CALLSHEET_KEYS_FILE, CALLSHEET_KEYS or CALLSHEET_KMS"
    )


class InvalidKeyring(VaultError, InvalidInput):
    """The keyring cannot be read."""

    code = "invalid_keyring"
    public = "this server's keys for secrets cannot be used; its operator finds out more with `callsheet doctor`"


class UnknownKek(VaultError):
    """The keyring lacks the KEK of an envelope."""

    code = "unknown_kek"


class RetiredKek(VaultError):
    """The KEK is retired: data keys under it are no longer unwrapped."""

    code = "retired_kek"


class Tampered(VaultError):
    """An envelope was changed, or sealed for another job, requester or version."""

    code = "tampered"


class CredentialsGone(VaultError):
    """The store has no credentials for the job: none were given, or they were deleted at its end."""

    code = "credentials_gone"


class CredentialsConflict(VaultError):
    """Another writer replaced the credentials first."""

    code = "credentials_conflict"


class CredentialRejected(VaultError):
    """Storage refuses the credentials, and a refresh failed or is impossible."""

    code = "credential_rejected"


class RefreshFailed(VaultError):
    """The requester gave no newer credentials in time."""

    code = "refresh_failed"


class RefreshUnreachable(RefreshFailed, Outage):
    """The requester's refresh_url does not answer."""

    waits_for = "the requester's refresh_url"


class KeyServiceUnavailable(VaultError, StoreUnavailable):
    """The key service is unreachable or overloaded; retry later."""

    code = "key_service_unavailable"
    public = "the key service cannot be reached now; try again"
    waits_for = "the key service"


class KeyServiceRefused(KeyServiceUnavailable, InvalidKeyring):
    """The key service refuses this program: its token or its rights ended, or its clock is wrong."""
