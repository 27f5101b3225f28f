"""Signed URLs for the folder and memory storages, which have no server: the URLs lead to Callsheet's server."""

from __future__ import annotations

from abc import abstractmethod

from .errors import UnknownObjects, UploadIncomplete
from .face import Objects
from .keys import checked, checked_type
from .records import MOST_PARTS, Part, Signed, Upload
from .signing import Claims, Signer, expires_in


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


def chosen_parts(upload: Upload, here: dict[int, Part], asked: list[Part]) -> list[Part]:
    """Check the requested parts against the written parts and return these; raises UploadIncomplete."""
    doing = f"complete {upload.key}"
    if not asked or [part.number for part in asked] != list(range(1, len(asked) + 1)):
        raise UploadIncomplete(f"{doing}: parts are missing")
    for part in asked:
        found = here.get(part.number)
        if found is None or found.etag != part.etag:
            raise UploadIncomplete(f"{doing}: part {part.number} did not arrive, or is another now")
        if found.size_bytes != upload.part_bytes and part.number != len(asked):
            raise UploadIncomplete(f"{doing}: part {part.number} does not have {upload.part_bytes} bytes")
    return [here[part.number] for part in asked]
