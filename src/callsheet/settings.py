"""Settings: every one is an environment variable `CALLSHEET_<NAME>` and a flag of the command line."""

from __future__ import annotations

import os

DEFAULT_DATABASE_URL = "sqlite:///callsheet.db"


def database_url() -> str:
    """Where the store is: `CALLSHEET_DATABASE_URL`, else a SQLite file in the working folder."""
    return os.environ.get("CALLSHEET_DATABASE_URL", DEFAULT_DATABASE_URL)
