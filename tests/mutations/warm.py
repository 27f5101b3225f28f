"""A Python process with preloaded libraries that runs pytest in forks of itself.

To load pytest and the libraries takes longer than most tests of guards. It runs as a separate program (`python -P
warm.py`), fed by a pipe: each line is a run, end of file means that the test process is done or dead. It answers with
the run's exit code. It never loads the program itself or its tests: a fork imports the program from the given tree.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypedDict

import psutil
import pytest

LIBRARIES = (
    "anyio._backends._asyncio",
    "pytest_asyncio.plugin",
    "pytest_rerunfailures",
    "pytest_timeout",
    "_hypothesis_pytestplugin",
    "asyncpg",
    "click",
    "cronsim",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "fastapi.testclient",
    "httpcore2",
    "httptools",
    "httpx2",
    "hypothesis.stateful",
    "numpy",
    "obstore.store",
    "opentelemetry.trace",
    "opentelemetry.metrics",
    "PIL.Image",
    "pdb",
    "pydantic.v1",
    "redis.asyncio",
    "regex",
    "sqlite3",
    "tomllib",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "watchfiles",
)
OURS = ("callsheet", "tests", "tools")


class Run(TypedDict):
    """The input of a fork: pytest's arguments, the tree to run in, its environment, and where its words go."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    output: str
    errors: str


class Outcome(NamedTuple):
    """A fork's stdout, stderr and exit code."""

    code: int
    output: str
    errors: str


class WarmPython:
    """The client side of the pipe. Runs are sequential."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    def start(cls) -> Self:
        """It loads while its first run is prepared."""
        command = [sys.executable, "-P", __file__]
        environment = {**os.environ, "PYTHONPATH": "", "OPENBLAS_NUM_THREADS": "1"}  # numpy would begin threads
        pipe = subprocess.PIPE
        return cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, process_group=0))

    def run(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Outcome:
        """Run pytest in a fork, in the tree at `folder`."""
        output, errors = folder / "output", folder / "errors"
        run = Run(
            arguments=[*arguments],
            folder=str(folder),
            environment={**environment},
            output=str(output),
            errors=str(errors),
        )
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(run) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the warm Python died"
        return Outcome(int(answer), output.read_text("utf-8"), errors.read_text("utf-8"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process and a possible run."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def main() -> None:
    """Serve the pipe until it closes. A fork leaves by the last line: exit handlers still run."""
    for name in LIBRARIES:
        importlib.import_module(name)
    assert not sys.modules.keys() & OURS, "what is to be changed is loaded already"
    assert psutil.Process().num_threads() == 1, "a fork would lack the other threads"
    gc.collect()
    gc.freeze()  # else each fork's first collection copies the memory of all libraries
    for line in sys.stdin:
        fork = os.fork()
        if not fork:
            sys.exit(_run(json.loads(line)))
        _, status = os.waitpid(fork, 0)
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _run(run: Run) -> int:
    """Run pytest in this process, as `python -m pytest` would in that folder."""
    for number, (path, mode) in enumerate(((os.devnull, "rb"), (run["output"], "wb"), (run["errors"], "wb"))):
        with Path(path).open(mode) as file:
            os.dup2(file.fileno(), number)
    os.chdir(run["folder"])
    os.environ.clear()
    os.environ.update(run["environment"])
    sys.path[:0] = run["environment"]["PYTHONPATH"].split(os.pathsep)
    sys.dont_write_bytecode = False
    sys.argv = ["pytest", *run["arguments"]]
    return pytest.main(run["arguments"])


if __name__ == "__main__":
    main()
