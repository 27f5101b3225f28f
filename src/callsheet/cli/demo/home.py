"""The demo's folder: its store, its files, its keys, and how far it is. Started again, it goes on from there."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

from callsheet.vault.keys import changing, first_keys, write_file

PORT = 8484
LASTING = ("key", "secret", "port", "inbox", "tries")


class Home:
    """A folder of ours alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):  # it is somebody else's
            self.folder.chmod(0o700)
        self._state = self.folder / "state.json"
        self.kept: dict[str, Any] = json.loads(self._state.read_text("utf-8")) if self._state.exists() else {}

    def keep(self, **facts: Any) -> None:
        """Write down what is to be known after a crash."""
        self.kept |= facts
        part = self._state.with_suffix(".part")
        part.unlink(missing_ok=True)  # one that was left may be open to others
        part.touch(mode=0o600, exist_ok=False)
        part.write_text(json.dumps(self.kept, indent=2), "utf-8")
        part.replace(self._state)

    def start_over(self) -> None:
        """Forget how far it was; who it is stays."""
        self.kept = {name: self.kept[name] for name in LASTING if name in self.kept}
        self.keep(tries=self.kept.get("tries", 1) + 1)

    def path(self, name: str) -> Path:
        """A file of it."""
        return self.folder / name

    @property
    def database_url(self) -> str:
        """Its own store."""
        return f"sqlite:///{self.path('demo.db')}"

    @property
    def objects_url(self) -> str:
        """Its own files."""
        return self.path("objects").as_uri()

    def keyring(self) -> Path:
        """The vault's keys, made when they are missing."""
        path = self.path("keys")
        with changing(path) as was:
            if was is None:
                write_file(path, first_keys())
        return path

    def port(self, name: str, wanted: int = 0) -> int:
        """The port that a server of the demo had before, else the wanted one, else a free one."""
        for number in (self.kept.get(name), wanted, 0):
            if number is None or (number == 0 and number is self.kept.get(name)):
                continue
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", number))
                except OSError:
                    continue
                found: int = probe.getsockname()[1]
            self.keep(**{name: found})
            return found
        raise OSError(f"no free port for {name}")


def default_home() -> Path:
    """Where the demo lives unless somebody says it."""
    return Path(os.environ.get("CALLSHEET_DEMO_HOME") or ".callsheet-demo")
