"""The machine and the versions behind a measurement. No host name and no path: results are published."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import version
from pathlib import Path

import psutil

PACKAGES = ("asyncpg", "redis", "hiredis", "uvloop")


def describe() -> dict[str, str]:
    """Return the hardware, the load average and the versions of this machine."""
    return {
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores",
        "RAM": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "load average": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        **{package: version(package) for package in PACKAGES},
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
