"""The child process: `python -I -S child.py packages`, an order as a line of JSON on stdin, answers on stdout.

After each kept frame the parent sends an empty line when it has processed the frame; at most AHEAD frames wait on the
disk. The child runs in the sandbox, since a hostile file can crash or take over a decoder.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import sys
from typing import Any

AHEAD = 8


def main(packages: str) -> None:
    """Carry out the order, or report the error."""
    sys.path += packages.split(os.pathsep)
    gc.disable()
    import av  # noqa: PLC0415 - found in the folders above

    from callsheet.media.sampling.decode import Order, TooLarge, look  # noqa: PLC0415
    from callsheet.media.sampling.records import Sampling  # noqa: PLC0415

    gc.freeze()  # modules stay in memory: garbage collection finds nothing among them
    gc.enable()
    av.logging.set_level(None)
    facts = json.loads(sys.stdin.readline())
    order = Order(**{**facts, "options": Sampling(**facts["options"])})
    try:
        look(order, Talk().tell)
    except MemoryError:
        tell({"error": "memory"})
    except TooLarge as error:
        tell({"error": "size", "text": str(error)})
    except (av.FFmpegError, ValueError) as error:
        tell({"error": "data", "text": getattr(error, "strerror", None) or str(error)})
    except OSError as error:  # after PyAV's, some of which are also this
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        tell({"error": "disk" if full else "system", "text": error.strerror or str(error)})


class Talk:
    """The connection to the parent, with a limit on unprocessed frames."""

    def __init__(self) -> None:
        self._waiting = 0

    def tell(self, answer: dict[str, Any]) -> None:
        """Send one line; block while AHEAD kept frames wait for the parent."""
        tell(answer)
        if "kept" in answer:
            self._waiting += 1
        while self._waiting >= AHEAD:
            if not sys.stdin.readline():
                sys.exit("the parent is gone")
            self._waiting -= 1


def tell(answer: dict[str, Any]) -> None:
    """Send one line to the parent."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
