"""Signed URLs of Callsheet's server, for storages without URLs: an HMAC over method, key and the whole query."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode

from callsheet.engine.system_secrets import OBJECT_LINKS, SECRET_BYTES, Sealer, system_secret
from callsheet.net.sigv4 import LONGEST_S, quoted_path

from .errors import LinkExpired, LinkRefused, UnknownObjects, UploadIncomplete
from .face import Objects
from .keys import checked, checked_type
from .records import MOST_PARTS, Part, Signed, Upload

if TYPE_CHECKING:
    from callsheet.store.protocol import Store


ROUTE = "/objects/"
MOST_NAME = 150
NAMES = frozenset({"expires", "size", "type", "upload", "part", "name", "bound"})


class Claims(NamedTuple):
    """The query parameters of a signed URL, which restrict the request."""

    expires: int
    size: int | None = None
    type: str = ""
    upload: str = ""
    part: int = 0
    name: str = ""
    bound: str = ""

    def as_query(self) -> dict[str, str]:
        """Return the query parameters that are set."""
        values = {name: value for name, value in self._asdict().items() if value or (name == "size" and value == 0)}
        return {name: str(value) for name, value in values.items()}


class Signer:
    """Signs and verifies URLs. `public_url` precedes the path; if empty, signed URLs are paths."""

    def __init__(self, secret: bytes, public_url: str = "") -> None:
        if len(secret) < SECRET_BYTES:
            raise UnknownObjects(f"a signing secret has at least {SECRET_BYTES} bytes")
        self._secret = secret
        self._public_url = public_url.rstrip("/")

    def __repr__(self) -> str:
        return f"Signer(public_url={self._public_url!r})"

    def at(self, public_url: str) -> Signer:
        """Return a signer with the same secret for another `public_url`."""
        return Signer(self._secret, public_url)

    def sign(self, method: str, key: str, claims: Claims) -> Signed:
        """Sign a request for a method and key."""
        query = claims.as_query()
        query["signature"] = self._mac(method, key, query)
        headers = {"content-type": claims.type} if claims.type else {}
        url = f"{self._public_url}{ROUTE}{quoted_path(key)}?{urlencode(query, quote_via=quote)}"
        return Signed(method, url, headers, claims.expires * 1000)

    def check(self, method: str, key: str, query: Sequence[tuple[str, str]], *, now: float | None = None) -> Claims:
        """Verify a request's signature and return its claims; raises LinkRefused, LinkExpired."""
        unsigned_query = dict(query)
        signature = unsigned_query.pop("signature", "")
        same = hmac.compare_digest(signature.encode(), self._mac(method, key, unsigned_query).encode())
        if not same or len(unsigned_query) + 1 != len(query) or not unsigned_query.keys() <= NAMES:
            raise LinkRefused("this URL was not signed here, or was changed")
        claims = _read(unsigned_query)
        if claims.expires < (time.time() if now is None else now):
            raise LinkExpired("this URL has expired; ask for a new one")
        return claims

    def _mac(self, method: str, key: str, query: Mapping[str, str]) -> str:
        text = "\n".join(("callsheet-objects-1", method, quoted_path(key), urlencode(sorted(query.items()))))
        return hmac.new(self._secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _read(query: Mapping[str, str]) -> Claims:
    size = query.get("size")
    return Claims(
        int(query["expires"]),
        None if size is None else int(size),
        query.get("type", ""),
        query.get("upload", ""),
        int(query.get("part", "0")),
        query.get("name", ""),
        query.get("bound", ""),
    )


def expires_in(expires_s: int) -> int:
    """Return the expiry time in Unix seconds of a URL valid for `expires_s` (1 second to 7 days)."""
    return int(time.time()) + max(1, min(LONGEST_S, expires_s))


def expiry_ms(expires_s: int) -> int:
    """Return the expiry time in Unix milliseconds of a URL valid for `expires_s`."""
    return expires_in(expires_s) * 1000


def disposition(name: str, *, inline: bool = False) -> str:
    """Return a Content-Disposition header with the file name escaped against header injection."""
    short = name[-MOST_NAME:].encode("utf-8", "replace").decode()
    plain = re.sub(r"[^A-Za-z0-9 ._-]", "_", short)
    word = "inline" if inline else "attachment"
    return f"{word}; filename=\"{plain}\"; filename*=UTF-8''{quote(short, safe='')}"


async def signer_of(store: Store, public_url: str = "", sealer: Sealer | None = None) -> Signer:
    """Return the signer shared by all processes of a store; the first call creates the secret. Raises SecretSealed."""
    return Signer(await system_secret(store, OBJECT_LINKS, sealer), public_url)


class OwnObjects(Objects):
    """Objects that Callsheet's route `/objects/…` serves to clients with a signed URL."""

    signer: Signer | None

    @abstractmethod
    async def find_upload(self, key: str, upload_id: str) -> Upload:
        """Return an open upload of a key by its id; raises UploadNotFound."""

    async def sign_get(self, key: str, expires_s: int, *, download_name: str | None = None) -> Signed:
        """Sign a download URL on Callsheet's server."""
        claims = Claims(expires_in(expires_s), name=download_name or "")
        return self._signer().sign("GET", checked(key), claims)

    async def sign_put(
        self,
        key: str,
        expires_s: int,
        *,
        content_type: str | None = None,
        size_bytes: int | None = None,
        bound_to: str = "",
    ) -> Signed:
        """Sign an upload URL on Callsheet's server."""
        kind = checked_type(content_type, key) if content_type else ""
        return self._signer().sign("PUT", checked(key), Claims(expires_in(expires_s), size_bytes, kind, bound=bound_to))

    async def sign_part(
        self, upload: Upload, number: int, expires_s: int, *, size_bytes: int | None = None, bound_to: str = ""
    ) -> Signed:
        """Sign the URL of one upload part on Callsheet's server."""
        part = checked_number(number)
        claims = Claims(expires_in(expires_s), size_bytes, upload=upload.upload_id, part=part, bound=bound_to)
        return self._signer().sign("PUT", upload.key, claims)

    def _signer(self) -> Signer:
        if self.signer is None:
            raise UnknownObjects(
                "this process signs no URLs: use open_objects(url, store), with the keyring where its secret is sealed"
            )
        return self.signer


def checked_number(number: int) -> int:
    """Return a valid part number unchanged; raises UploadIncomplete."""
    if not 1 <= number <= MOST_PARTS:
        raise UploadIncomplete(f"parts have the numbers 1 to {MOST_PARTS}")
    return number


def chosen_parts(upload: Upload, here: dict[int, Part], requested: list[Part]) -> list[Part]:
    """Check the requested parts against the written parts and return these; raises UploadIncomplete."""
    doing = f"complete {upload.key}"
    if not requested or [part.number for part in requested] != list(range(1, len(requested) + 1)):
        raise UploadIncomplete(f"{doing}: parts are missing")
    for part in requested:
        part_here = here.get(part.number)
        if part_here is None or part_here.etag != part.etag:
            raise UploadIncomplete(f"{doing}: part {part.number} did not arrive, or is another now")
        if part_here.size_bytes != upload.part_bytes and part.number != len(requested):
            raise UploadIncomplete(f"{doing}: part {part.number} does not have {upload.part_bytes} bytes")
    return [here[part.number] for part in requested]
