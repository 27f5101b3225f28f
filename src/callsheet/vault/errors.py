"""What can go wrong with secrets. No message has any part of one in it.

CallsheetError
├── VaultError
│   ├── NoKeyring            nothing says where the keys are
│   ├── InvalidKeyring       what says it cannot be read
│   ├── UnknownKek           the keyring has no such key (perhaps not yet)
│   ├── RetiredKek           the key is below the keyring's minimum, or disabled in its service
│   ├── Tampered             an envelope is not what was sealed for this job, requester and version
│   ├── CredentialsGone      the job has none (any more)
│   ├── CredentialsConflict  another writer replaced them first
│   ├── CredentialRejected   storage refuses them, also after a refresh
│   └── RefreshFailed        no newer credentials came in time
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
    """Nothing says where the keys are."""

    code = "no_keyring"
    public = (
        "this server has no keys for secrets; its operator sets CALLSHEET_KEYS_FILE, CALLSHEET_KEYS or CALLSHEET_KMS"
    )


class InvalidKeyring(VaultError, InvalidInput):
    """The keyring cannot be read."""

    code = "invalid_keyring"
    public = "this server's keys for secrets cannot be used; its operator finds out more with `callsheet doctor`"


class UnknownKek(VaultError):
    """The keyring has no such key."""

    code = "unknown_kek"


class RetiredKek(VaultError):
    """The key is retired: what it wraps is not opened any more."""

    code = "retired_kek"


class Tampered(VaultError):
    """An envelope is not what was sealed for this job, requester and version."""

    code = "tampered"


class CredentialsGone(VaultError):
    """The job has no credentials, or none any more."""

    code = "credentials_gone"


class CredentialsConflict(VaultError):
    """Another writer replaced the credentials first."""

    code = "credentials_conflict"


class CredentialRejected(VaultError):
    """Storage refuses the credentials, and a refresh did not help or is not to be had."""

    code = "credential_rejected"


class RefreshFailed(VaultError):
    """The requester gave no newer credentials in time."""

    code = "refresh_failed"


class RefreshUnreachable(RefreshFailed, Outage):
    """The requester's refresh_url does not answer."""

    waits_for = "the requester's refresh_url"


class KeyServiceUnavailable(VaultError, StoreUnavailable):
    """The key service cannot be reached now; trying again later is right."""

    code = "key_service_unavailable"
    public = "the key service cannot be reached now; try again"
    waits_for = "the key service"


class KeyServiceRefused(KeyServiceUnavailable, InvalidKeyring):
    """The key service does not let this program in: its token or its rights ended, or its clock is wrong."""
