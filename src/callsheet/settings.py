"""Settings: every one is an environment variable `CALLSHEET_<NAME>` and a flag of the command line."""

from __future__ import annotations

DEFAULT_DATABASE_URL = "sqlite:///callsheet.db"
