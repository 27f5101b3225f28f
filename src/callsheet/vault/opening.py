"""Opens the keyring that the environment configures; the first of three variables wins.

`CALLSHEET_KMS` names a key service (`aws`, `vault`: see kms.py and transit.py), `CALLSHEET_KEYS_FILE` names a file,
`CALLSHEET_KEYS` holds a keyring's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import InvalidKeyring, NoKeyring
from .keyring import ADVICE, Keyring

if TYPE_CHECKING:
    from collections.abc import Mapping


def keyring_from(environ: Mapping[str, str]) -> Keyring:
    """Open the configured keyring; raises NoKeyring or InvalidKeyring."""
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
