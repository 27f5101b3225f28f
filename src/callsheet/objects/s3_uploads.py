"""Multipart uploads and signed URLs of an S3 bucket."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from .errors import (
    ObjectChanged,
    ObjectExists,
    ObjectNotFound,
    ObjectTooLarge,
    UploadIncomplete,
    UploadNotFound,
)
from .face import Data, Objects
from .keys import checked, checked_type
from .records import MOST_PARTS, ObjectInfo, Part, Signed, Upload
from .s3_wire import Call, Wire
from .signing import expiry_ms


class S3Uploads(Objects):
    """The Objects methods that send signed requests through `Wire`, without obstore."""

    _wire: Wire

    async def begin_multipart(self, key: str, *, part_bytes: int, content_type: str | None = None) -> Upload:
        """Begin a multipart upload at the storage."""
        kind = checked_type(content_type, checked(key))
        return Upload(key, await self._wire.begin(key, kind, f"begin an upload of {key}"), part_bytes, kind)

    async def sign_part(
        self,
        upload: Upload,
        number: int,
        expires_s: int,
        *,
        size_bytes: int | None = None,
        bound_to: str = "",  # noqa: ARG002 - the storage asks nobody
    ) -> Signed:
        """Sign the URL of one part with the current credentials."""
        headers = {} if size_bytes is None else {"content-length": str(size_bytes)}
        return await self._signed(Call("PUT", upload.key, part_query(upload, number), headers), expires_s)

    async def put_part(self, upload: Upload, number: int, data: Data) -> Part:
        """Write one part from memory; a failed part is sent again alone."""
        content = data if isinstance(data, bytes) else b"".join([piece async for piece in data])
        if len(content) > upload.part_bytes:
            raise ObjectTooLarge(f"part {number} of {upload.key} has more than {upload.part_bytes} bytes")
        call = Call("PUT", upload.key, part_query(upload, number), {}, content)
        answer = await self._wire.ask(call, f"put part {number} of {upload.key}")
        return Part(number, answer.headers.get("etag", ""), len(content))

    async def list_parts(self, upload: Upload) -> Sequence[Part]:
        """Return the parts that the storage lists, in order of number."""
        return await self._wire.parts(upload.key, upload.upload_id, f"list the parts of {upload.key}")

    async def complete_multipart(
        self, upload: Upload, parts: Sequence[Part] | None = None, *, only_if_absent: bool = False
    ) -> ObjectInfo:
        """Complete the upload in one request, with an if-none-match header for `only_if_absent`."""
        chosen = await self.list_parts(upload) if parts is None else parts
        return await self._complete(upload, chosen, conditions(only_if_absent, None))

    async def _complete(self, upload: Upload, parts: Sequence[Part], headers: dict[str, str]) -> ObjectInfo:
        doing = f"complete {upload.key}"
        if [part.number for part in parts] != list(range(1, len(parts) + 1)) or not parts:
            raise UploadIncomplete(f"{doing}: parts are missing")
        try:
            await self._wire.complete(upload.key, upload.upload_id, parts, headers, doing)
        except ObjectChanged:
            if "if-none-match" in headers:
                raise ObjectExists(f"{doing}: it is there already") from None
            raise
        return await self.head(upload.key)

    async def abort_multipart(self, upload: Upload) -> None:
        """Abort the upload; an unknown upload is ignored."""
        with contextlib.suppress(UploadNotFound, ObjectNotFound):
            call = Call("DELETE", upload.key, {"uploadId": upload.upload_id})
            await self._wire.ask(call, f"abort the upload of {upload.key}")

    async def _signed(self, call: Call, expires_s: int) -> Signed:
        url = await self._wire.signed_url(call, expires_s)
        return Signed(call.method, url, dict(call.headers), expiry_ms(expires_s))


def conditions(only_if_absent: bool, if_match: str | None) -> dict[str, str]:  # noqa: FBT001 - as the face has them
    """Return the headers of a conditional write."""
    return {"if-none-match": "*"} if only_if_absent else {"if-match": if_match} if if_match else {}


def part_query(upload: Upload, number: int) -> dict[str, str]:
    """Return the query parameters of an upload part; raises UploadIncomplete for a number outside 1 to 10,000."""
    if not 1 <= number <= MOST_PARTS:
        raise UploadIncomplete(f"parts have the numbers 1 to {MOST_PARTS}")
    return {"partNumber": str(number), "uploadId": upload.upload_id}
