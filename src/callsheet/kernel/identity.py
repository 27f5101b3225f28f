"""The id of a worker: `POD_NAME`, else `HOSTNAME`, else a boot UUID that is new with each process start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def worker_identity(environ: Mapping[str, str], boot_uuid: str) -> str:
    """Return the worker's id. The caller makes `boot_uuid` once per process start."""
    return environ.get("POD_NAME", "").strip() or environ.get("HOSTNAME", "").strip() or boot_uuid


def name_of(worker_id: str) -> str:
    """Return the public part of a worker's id: the text after a `~` is the hash of its lease token."""
    return worker_id.partition("~")[0]
