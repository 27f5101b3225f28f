"""Runs one driver: its environment, its time limit, its one line of JSON, and the end of every process that it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any, cast

import psutil

from bench.peers import environment
from bench.peers.catalogue import Entry

DRIVERS = environment.HERE / "drivers"


class Failed(Exception):
    """A driver printed no figures; the message quotes its output."""


def figures(entry: Entry, scenario: str, url: str, options: dict[str, object], *, limit_s: float) -> dict[str, Any]:
    """What the driver measured."""
    command = [*_program(entry), scenario, "--url", url]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PEER_MODULES": str(environment.modules())}
    with tempfile.TemporaryDirectory(prefix="callsheet-peers-") as folder, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end within {limit_s:.0f} s") from None
        finally:
            _end(process)
        errors.seek(0)
        return _parse(output, errors.read())


def _program(entry: Entry) -> list[str]:
    driver = str(DRIVERS / entry.driver)
    return [str(environment.build(entry.environment)) if entry.environment else sys.executable, driver]


def _parse(output: str, errors: str) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", json.loads(output))
    except ValueError:
        lines = [line.strip() for line in errors.splitlines() if any(map(str.isalnum, line))]
        raise Failed(f"no figures: {lines[-1][:300] if lines else 'it said nothing'}") from None


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the driver and its workers, other process groups included."""
    if process.poll() is not None:
        return
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.communicate()
