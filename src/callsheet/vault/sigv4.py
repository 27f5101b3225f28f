"""AWS Signature Version 4 for one POST with a JSON body: all that the key service needs."""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple
from urllib.parse import urlsplit

from .secret import Secret

ALGORITHM = "AWS4-HMAC-SHA256"


class Signer(NamedTuple):
    """Who signs, and for which service."""

    access_key_id: str
    secret_access_key: Secret
    region: str
    service: str
    session_token: Secret | None = None

    def headers(self, url: str, body: bytes, headers: dict[str, str], at: str) -> dict[str, str]:
        """The headers with a signature over all of them and the body; `at` is the time as 20261116T061500Z."""
        given = {**headers, "host": urlsplit(url).netloc, "x-amz-date": at}
        if self.session_token is not None:
            given["x-amz-security-token"] = self.session_token.reveal()
        signed = dict(sorted((name.lower(), " ".join(value.split())) for name, value in given.items()))
        names = ";".join(signed)
        digest = hashlib.sha256(body).hexdigest()
        lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
        path = urlsplit(url).path or "/"
        request = f"POST\n{path}\n\n{lines}\n{names}\n{digest}"
        scope = f"{at[:8]}/{self.region}/{self.service}/aws4_request"
        text = "\n".join((ALGORITHM, at, scope, hashlib.sha256(request.encode()).hexdigest()))
        signature = hmac.new(self._key(at[:8]), text.encode(), hashlib.sha256).hexdigest()
        proof = f"Credential={self.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**given, "authorization": f"{ALGORITHM} {proof}"}

    def _key(self, day: str) -> bytes:
        key = f"AWS4{self.secret_access_key.reveal()}".encode()
        for part in (day, self.region, self.service, "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key
