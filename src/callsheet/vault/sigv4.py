"""AWS signature version 4 in the headers of a POST request, as the key service requires."""

from __future__ import annotations

import hashlib
from typing import NamedTuple
from urllib.parse import urlsplit

from callsheet.sigv4 import ALGORITHM, Canonical, Scope, in_order, signature

from .secret import Secret


class Signer(NamedTuple):
    """AWS credentials with the region and service to sign for."""

    access_key_id: str
    secret_access_key: Secret
    region: str
    service: str
    session_token: Secret | None = None

    def headers(self, url: str, body: bytes, headers: dict[str, str], at: str) -> dict[str, str]:
        """Return the headers plus a signature over all headers and the body; `at` is the time as 20261116T061500Z."""
        place, scope = urlsplit(url), Scope(self.region, self.service)
        given = {**headers, "host": place.netloc, "x-amz-date": at}
        if self.session_token is not None:
            given["x-amz-security-token"] = self.session_token.reveal()
        request = Canonical("POST", place.path, "", in_order(given), hashlib.sha256(body).hexdigest())
        signed = signature(request, self.secret_access_key.reveal(), scope, at)
        proof = f"Credential={self.access_key_id}/{scope.on(at)}, SignedHeaders={request.names}, Signature={signed}"
        return {**given, "authorization": f"{ALGORITHM} {proof}"}
