"""The child process of a tool call: `python -m callsheet.llm.tool_child module:qualname`.

It reads one order line from stdin, sets its own limits, imports the tool, calls it once and writes the outcome to
stdout. The tool's own prints go to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import inspect
import json
import os
import resource
import signal
import sys
import threading
from typing import Any

from callsheet.sandbox.processes import kill_below

MB = 1024 * 1024
PR_SET_CHILD_SUBREAPER = 36
MESSAGE_CHARS = 2_000


def main(place: str) -> None:
    """Carry out one order."""
    os.environ.pop("PYTHONPATH", None)
    orders, answers = os.dup(0), os.dup(1)  # only for us: the tool's stdin is empty, and its prints go to stderr
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    with os.fdopen(orders, "rb", closefd=False) as lines:
        order = json.loads(lines.readline())
    _settle_in(order["limits"])
    threading.Thread(target=_end_with_the_worker, args=(orders,), daemon=True).start()
    text = _outcome(place, order)
    kill_below(os.getpid())  # kill the tool's remaining processes, which still hold our pipes
    with os.fdopen(answers, "wb") as out:
        out.write(text)
    _leave()


def _end_with_the_worker(orders: int) -> None:
    """Wait for stdin to close, which means that the worker died; then kill the whole session."""
    os.read(orders, 1)
    kill_below(os.getpid())
    os.killpg(0, signal.SIGKILL)


def _settle_in(limits: dict[str, Any]) -> None:
    """Set system limits for this process and its children, and adopt orphaned descendants."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    limits_by_kind = {
        resource.RLIMIT_CPU: (limits["cpu_s"], limits["cpu_s"] + 2),  # SIGXCPU comes first and names the reason
        resource.RLIMIT_AS: (limits["memory_mb"] * MB,) * 2,
        resource.RLIMIT_FSIZE: (limits["file_mb"] * MB,) * 2,
        resource.RLIMIT_NOFILE: (limits["open_files"],) * 2,
        resource.RLIMIT_CORE: (0, 0),
    }
    for kind, soft_and_hard in limits_by_kind.items():
        most = resource.getrlimit(kind)[1]
        soft, hard = (
            value if most == resource.RLIM_INFINITY else min(value, most) for value in map(int, soft_and_hard)
        )
        resource.setrlimit(kind, (soft, hard))


def _outcome(place: str, order: dict[str, Any]) -> bytes:
    try:
        return json.dumps({"result": _call(place, order)}, allow_nan=False).encode()
    except MemoryError:
        return b'{"error": {"type": "MemoryError", "message": ""}}'
    except BaseException as error:  # noqa: BLE001 - whatever a tool raises is its outcome, sys.exit() too
        message = str(error)[:MESSAGE_CHARS].encode("utf-8", "replace").decode()
        return json.dumps({"error": {"type": type(error).__name__, "message": message}}).encode()


def _call(place: str, order: dict[str, Any]) -> Any:
    from callsheet.llm.signature import check, schema_of  # noqa: PLC0415 - under the limits, and after them

    module, _, qualname = place.partition(":")
    function: Any = importlib.import_module(module)
    for part in qualname.split("."):
        function = getattr(function, part)
    arguments = check(order["name"], schema_of(order["name"], function), order["arguments"].encode())
    value = function(**arguments)
    if inspect.iscoroutine(value):
        value = asyncio.run(value)
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - dataclasses and dates become JSON as in a task

    return to_jsonable_python(value)


def _leave() -> None:
    """Exit at once: the tool's remaining threads must not delay its answer."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
