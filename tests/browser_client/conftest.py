from __future__ import annotations

from tests.client.conftest import client, idle, site

__all__ = ["client", "idle", "site"]  # the same server and worker as for the Python client
