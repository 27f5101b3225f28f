"""The demo's folder: its store, files and keys, and the state from which a new start goes on."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

from callsheet.vault.keys import changing, first_keys, write_file

PORT = 8484
PERMANENT = ("key", "secret", "port", "inbox", "tries")


class Home:
    """A folder that only its owner can read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):  # another user owns the folder
            self.folder.chmod(0o700)
        self._state_file = self.folder / "state.json"
        self.state: dict[str, Any] = (
            json.loads(self._state_file.read_text("utf-8")) if self._state_file.exists() else {}
        )

    def save(self, **facts: Any) -> None:
        """Add facts to the state and write it to the file."""
        self.state |= facts
        part = self._state_file.with_suffix(".part")
        part.unlink(missing_ok=True)  # a file from a crash may be readable by others
        part.touch(mode=0o600, exist_ok=False)
        part.write_text(json.dumps(self.state, indent=2), "utf-8")
        part.replace(self._state_file)

    def start_over(self) -> None:
        """Forget the progress, but keep the key, the secret and the ports."""
        self.state = {name: self.state[name] for name in PERMANENT if name in self.state}
        self.save(tries=self.state.get("tries", 1) + 1)

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder."""
        return self.folder / name

    @property
    def database_url(self) -> str:
        """The URL of the demo's store."""
        return f"sqlite:///{self.path('demo.db')}"

    @property
    def objects_url(self) -> str:
        """The URL of the demo's object storage."""
        return self.path("objects").as_uri()

    def keyring(self) -> Path:
        """Return the vault's keyring file, created if it is missing."""
        path = self.path("keys")
        with changing(path) as keys:
            if keys is None:
                write_file(path, first_keys())
        return path

    def port(self, name: str, preferred: int = 0) -> int:
        """Return the port that a server of the demo had before, else the preferred one, else a free one."""
        for number in (self.state.get(name), preferred, 0):
            if number is None or (number == 0 and number is self.state.get(name)):
                continue
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", number))
                except OSError:
                    continue
                port: int = probe.getsockname()[1]
            self.save(**{name: port})
            return port
        raise OSError(f"no free port for {name}")


def default_home() -> Path:
    """Return the demo's folder unless a flag names one."""
    return Path(os.environ.get("CALLSHEET_DEMO_HOME") or ".callsheet-demo")
