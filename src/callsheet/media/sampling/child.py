"""The child's end: `python -I -S child.py packages`, an order as a line of JSON on stdin, answers as such on stdout.

For each kept frame the parent sends an empty line when it is done with it, and no more than AHEAD of them are ever
waiting on the disk. It runs inside the box, because a decoder can be crashed, or worse, by the file that it opens.
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
    """Carry out the order, or say why not."""
    sys.path += packages.split(os.pathsep)
    gc.disable()
    import av  # noqa: PLC0415 - found in the folders above

    from callsheet.media.sampling.decode import Order, TooLarge, look  # noqa: PLC0415
    from callsheet.media.sampling.records import Sampling  # noqa: PLC0415

    gc.freeze()  # modules stay: looking for garbage among them, now and between frames, is for nothing
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
    """What is told to the parent."""

    def __init__(self) -> None:
        self._waiting = 0

    def tell(self, answer: dict[str, Any]) -> None:
        """One line; with a kept frame too many this waits until the parent is done with one."""
        tell(answer)
        if "kept" in answer:
            self._waiting += 1
        while self._waiting >= AHEAD:
            if not sys.stdin.readline():
                sys.exit("the parent is gone")
            self._waiting -= 1


def tell(answer: dict[str, Any]) -> None:
    """One line to the parent."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
