"""Opens object storages by URL, with the environment variables that the contracts name for S3."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from callsheet.engine.system_secrets import Sealers, SecretSealed
from callsheet.extras import needed_for

from .credentials import Credentials, HeldCredentials
from .errors import UnknownObjects
from .face import Objects
from .folder import FolderObjects
from .keys import checked_prefix
from .signing import Signer, signer_of
from .storage_breaker import breaker_of

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

    from .s3_wire import Bucket

log = logging.getLogger("callsheet.objects")
ACCESS_KEY = ("S3_ACCESS_KEY_ID", "S3_ACCESS_KEY", "AWS_ACCESS_KEY_ID")
SECRET_KEY = ("S3_SECRET_ACCESS_KEY", "S3_SECRET_KEY", "AWS_SECRET_ACCESS_KEY")
TOKEN = ("S3_SESSION_TOKEN", "AWS_SESSION_TOKEN")
ENDPOINT = ("S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGION = ("S3_REGION", "AWS_REGION", "AWS_DEFAULT_REGION")
BUCKET = ("S3_BUCKET",)
DEFAULT_REGION = "us-east-1"
KNOWN = "file:///folder, s3://bucket/prefix or memory:"


def objects_from_url(
    url: str,
    *,
    credentials: Credentials | HeldCredentials | None = None,
    signer: Signer | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Objects:
    """Return the storage of a URL: `file:///folder`, `s3://bucket/prefix` or `memory:`, without opening a connection.

    An S3's settings come from S3_ENDPOINT, S3_BUCKET, S3_REGION, S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY, else from
    the AWS_ variables. Raises UnknownObjects.
    """
    parts = urlsplit(url)
    if signer is not None and (public_url := parse_qs(parts.query).get("public_url")):
        signer = signer.at(public_url[0])
    match parts.scheme:
        case "memory":
            with needed_for("objects in memory"):
                from .memory import MemoryObjects  # noqa: PLC0415 - obstore, which a folder does not need

            return MemoryObjects(signer)
        case "file":
            return FolderObjects(_folder(parts.netloc, unquote(parts.path)), signer)
        case "s3":
            with needed_for("objects in an S3"):
                from .s3 import S3Objects  # noqa: PLC0415 - see above

            bucket = _bucket(parts.netloc, unquote(parts.path), environ)
            return S3Objects(bucket, _held(credentials, environ), breaker=breaker_of(bucket.base))
    raise UnknownObjects(f"an objects URL is {KNOWN}")


async def open_objects(
    url: str,
    store: Store,
    *,
    credentials: Credentials | HeldCredentials | None = None,
    sealer: Sealers = lambda: None,
) -> Objects:
    """Return the storage of a URL, signing with the job store's secret: all processes of the store accept its URLs.

    `sealer` (`engine.sealer`) decrypts the secret. A process unable to decrypt the secret signs no URLs.
    """
    signer = None
    if urlsplit(url).scheme != "s3":  # it signs by its own keys
        try:
            signer = await signer_of(store, sealer=sealer())
        except SecretSealed as error:
            log.warning("this process signs no URLs of objects: %s", error)
    return objects_from_url(url, credentials=credentials, signer=signer)


def _folder(host: str, path: str) -> Path:
    if host not in {"", "localhost"} or not path.startswith("/") or not path.strip("/"):
        raise UnknownObjects("a folder of objects is named with three slashes, file:///folder, and is not the root")
    return Path(path)


def _bucket(name: str, path: str, environ: Mapping[str, str]) -> Bucket:
    from .s3_wire import Bucket  # noqa: PLC0415 - see above

    if "@" in name:
        raise UnknownObjects("keys do not belong into a URL: set S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY")
    bucket = name or _first(BUCKET, environ)
    if not bucket:
        raise UnknownObjects("which bucket? Write s3://bucket, or set S3_BUCKET")
    endpoint = _first(ENDPOINT, environ)
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise UnknownObjects("S3_ENDPOINT begins with https://")
    region = _first(REGION, environ) or DEFAULT_REGION
    return Bucket(bucket, endpoint, region, checked_prefix(path.strip("/")))


def _held(credentials: Credentials | HeldCredentials | None, environ: Mapping[str, str]) -> HeldCredentials:
    if isinstance(credentials, HeldCredentials):
        return credentials
    if credentials is None:
        # The three belong together: a secret of one family does not fit a key of another.
        for family in ("S3_", "AWS_"):
            key, secret, token = (
                _first(tuple(name for name in names if name.startswith(family)), environ)
                for names in (ACCESS_KEY, SECRET_KEY, TOKEN)
            )
            if key and secret:
                credentials = Credentials(key, secret, token)
                break
        else:
            raise UnknownObjects("an S3 needs S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY")
    return HeldCredentials(credentials)


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")
