"""Stand-ins for AWS KMS and Vault's transit engine: small servers that check signature and token, and really encrypt.

These are imitations of the services. They hold the adapters to the parts of the published interfaces that they use: an
independent implementation computes the signature from the received request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Reply = tuple[int, dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    """Gives each request to the server's `answer` and keeps what was asked."""

    server: Any
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.service.seen.append((self.command, self.path, dict(self.headers), body))
        status, reply = self.server.service.answer(self.command, self.path, self.headers, body)
        text = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log line."""


class Service:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.busy = 0
        self.url = ""

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> Reply:
        if self.busy:
            self.busy -= 1
            return 503, {}
        return self.reply(method, path, headers, body)

    def reply(self, method: str, path: str, headers: Any, body: bytes) -> Reply:
        raise NotImplementedError

    @contextmanager
    def running(self) -> Iterator[Service]:
        server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.service = self
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class Kms(Service):
    """Keys by ARN, an alias, and a signature that must be right."""

    region, access_key_id, session_token = "eu-test-1", "AKIDEXAMPLEEXAMPLE00", "session-token-of-the-test"

    def __init__(self) -> None:
        super().__init__()
        self.secret_access_key = secrets.token_urlsafe(30)
        self.keys: dict[str, bytes] = {}
        self.disabled: set[str] = set()
        self.aliased = self.new_key()

    def new_key(self) -> str:
        arn = f"arn:aws:kms:{self.region}:111122223333:key/{secrets.token_hex(8)}"
        self.keys[arn] = secrets.token_bytes(32)
        self.aliased = arn
        return arn

    def environ(self) -> dict[str, str]:
        return {
            "CALLSHEET_KMS": "aws:alias/callsheet",
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_SESSION_TOKEN": self.session_token,
            "AWS_ENDPOINT_URL_KMS": self.url,
        }

    def reply(self, method: str, path: str, headers: Any, body: bytes) -> Reply:
        if fault := self._signature_fault(method, path, headers, body):
            return 400, {"__type": fault, "message": "no"}
        request = json.loads(body)
        arn = self.aliased if request["KeyId"] == "alias/callsheet" else request["KeyId"]
        if arn not in self.keys:
            return 400, {"__type": "com.amazonaws.kms#NotFoundException"}
        if arn in self.disabled and not headers["x-amz-target"].endswith("DescribeKey"):
            return 400, {"__type": "DisabledException"}
        actions = {"DescribeKey": self.DescribeKey, "Encrypt": self.Encrypt, "Decrypt": self.Decrypt}
        return actions[headers["x-amz-target"].partition(".")[2]](arn, request)

    def DescribeKey(self, arn: str, query: dict[str, Any]) -> Reply:  # noqa: N802 - the service's word
        return 200, {"KeyMetadata": {"Arn": arn}}

    def Encrypt(self, arn: str, asked: dict[str, Any]) -> Reply:  # noqa: N802
        nonce, aad = secrets.token_bytes(12), json.dumps(asked["EncryptionContext"], sort_keys=True).encode()
        ciphertext = AESGCM(self.keys[arn]).encrypt(nonce, base64.b64decode(asked["Plaintext"]), aad)
        blob = hashlib.sha256(arn.encode()).digest() + nonce + ciphertext
        return 200, {"KeyId": arn, "CiphertextBlob": base64.b64encode(blob).decode()}

    def Decrypt(self, arn: str, asked: dict[str, Any]) -> Reply:  # noqa: N802
        blob, aad = base64.b64decode(asked["CiphertextBlob"]), json.dumps(asked["EncryptionContext"], sort_keys=True)
        if not any(blob[:32] == hashlib.sha256(name.encode()).digest() for name in self.keys):
            return 400, {"__type": "InvalidCiphertextException"}
        if blob[:32] != hashlib.sha256(arn.encode()).digest():
            return 400, {"__type": "IncorrectKeyException"}
        try:
            plain = AESGCM(self.keys[arn]).decrypt(blob[32:44], blob[44:], aad.encode())
        except InvalidTag:
            return 400, {"__type": "InvalidCiphertextException"}
        return 200, {"KeyId": arn, "Plaintext": base64.b64encode(plain).decode()}

    def _signature_fault(self, method: str, path: str, headers: Any, body: bytes) -> str:
        """Return the signature's fault: computed from the request as it came."""
        algorithm, _, rest = headers.get("authorization", "").partition(" ")
        parts = dict(part.split("=", 1) for part in rest.split(", ")) if rest else {}
        at = headers.get("x-amz-date", "")
        scope = f"{at[:8]}/{self.region}/kms/aws4_request"
        if algorithm != "AWS4-HMAC-SHA256" or parts.get("Credential") != f"{self.access_key_id}/{scope}":
            return "UnrecognizedClientException"
        age = datetime.now(UTC) - datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        names = parts["SignedHeaders"].split(";")
        if abs(age.total_seconds()) > 300 or not {"host", "x-amz-date", "x-amz-target"} <= set(names):
            return "InvalidSignatureException"
        if headers.get("x-amz-security-token") != self.session_token or "x-amz-security-token" not in names:
            return "UnrecognizedClientException"
        canonical = [method, path, ""] + [f"{name}:{headers[name]}" for name in names]
        canonical += ["", ";".join(names), hashlib.sha256(body).hexdigest()]
        digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
        key = b"AWS4" + self.secret_access_key.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        expected = hmac.digest(key, f"{algorithm}\n{at}\n{scope}\n{digest}".encode(), "sha256").hex()
        return "" if hmac.compare_digest(expected, parts["Signature"]) else "InvalidSignatureException"


class Transit(Service):
    """One key with versions, a token, and associated data (that a server before 1.13 ignores)."""

    def __init__(self, *, binds: bool = True) -> None:
        super().__init__()
        self.token = f"hvs.{secrets.token_urlsafe(24)}"
        self.versions = [secrets.token_bytes(32)]
        self.min_decryption_version = 1
        self.binds = binds

    def rotate(self) -> None:
        self.versions.append(secrets.token_bytes(32))

    def environ(self) -> dict[str, str]:
        return {"CALLSHEET_KMS": "vault:transit/callsheet", "VAULT_ADDR": self.url, "VAULT_TOKEN": self.token}

    def reply(self, method: str, path: str, headers: Any, body: bytes) -> Reply:
        if headers.get("x-vault-token") != self.token:
            return 403, {"errors": ["permission denied"]}
        request = json.loads(body) if body else {}
        aad = base64.b64decode(request.get("associated_data", "")) if self.binds else b""
        match (method, path):
            case ("GET", "/v1/transit/keys/callsheet"):
                return 200, {"data": {"latest_version": len(self.versions)}}
            case ("POST", "/v1/transit/encrypt/callsheet"):
                nonce = secrets.token_bytes(12)
                ciphertext = nonce + AESGCM(self.versions[-1]).encrypt(
                    nonce, base64.b64decode(request["plaintext"]), aad
                )
                text = f"vault:v{len(self.versions)}:{base64.b64encode(ciphertext).decode()}"
                return 200, {"data": {"ciphertext": text, "key_version": len(self.versions)}}
            case ("POST", "/v1/transit/decrypt/callsheet"):
                return self._decrypt(request["ciphertext"], aad)
        return 404, {"errors": []}

    def _decrypt(self, ciphertext: str, aad: bytes) -> Reply:
        _, version, text = ciphertext.split(":", 2)
        if int(version[1:]) < self.min_decryption_version:
            return 400, {"errors": ["ciphertext or signature version is disallowed by policy (too old)"]}
        try:
            raw = base64.b64decode(text, validate=True)
            plain = AESGCM(self.versions[int(version[1:]) - 1]).decrypt(raw[:12], raw[12:], aad)
        except (InvalidTag, ValueError, IndexError):
            return 400, {"errors": ["cipher: message authentication failed"]}
        return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}
