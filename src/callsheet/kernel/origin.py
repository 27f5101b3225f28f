"""Where an exception was raised: in our own code, or by a driver that it called.

A driver's error classes do not tell: a connection that is reset under uvloop reaches callers of redis-py as
RuntimeError and callers of httpcore as AttributeError. So every edge takes whatever comes out of its driver for an
outage.
"""

from __future__ import annotations

OURS = __name__.partition(".")[0]


def is_from_driver(error: BaseException, *drivers: str) -> bool:
    """Return whether the last call that our code made, before this exception was raised, was one of these packages.

    An exception of our own code, of code that uses us, or of another library is a mistake and must be seen as such.
    """
    trace, called = error.__traceback__, ""
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        called = "" if package == OURS else called or package
        trace = trace.tb_next
    return called in drivers
