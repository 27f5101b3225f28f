"""Decide whether our own code raised an exception, or a driver below it.

A driver's error classes do not tell: a connection that is reset under uvloop reaches callers of redis-py as
RuntimeError and callers of httpcore as AttributeError. So each adapter treats every exception from its driver as an
outage.
"""

from __future__ import annotations

OURS = __name__.partition(".")[0]


def is_from_driver(error: BaseException, *drivers: str) -> bool:
    """Return whether the last call from our code, before this exception was raised, went into one of these packages.

    Exceptions from our own code, from code that uses us, or from other libraries are bugs and must surface as bugs.
    """
    trace, called = error.__traceback__, ""
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        called = "" if package == OURS else called or package
        trace = trace.tb_next
    return called in drivers
