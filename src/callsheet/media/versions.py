"""Which versions of ffmpeg are safe to open strangers' files with, and which are new enough. Pure; nothing is run here.

CVE-2026-8461, a write past the end of the heap that an AVI, MKV or MOV file can cause, was mended in each branch of its
own: 8.0.3, 8.1.2 and 9.0. `tools/check_pins.py` fails `make check` when a pinned wheel carries an ffmpeg below these.
"""

from __future__ import annotations

import re

SAFE_BRANCHES = {(8, 0): 3, (8, 1): 2}  # a branch, and its first release with the mend
SAFE_FROM = (9, 0)  # this and all later ones
SAFE_VERSIONS = "8.0.3, 8.1.2 or 9.0"  # the same for people
# 7.0 is the oldest that the tests are run with; 5.1 loses the end of an HLS whose frames are uneven
OLDEST_VERSION = (7, 0)

Numbers = tuple[int, ...]


def numbers_of(version: str) -> Numbers:
    """The version as numbers: `n9.0.2-17-g2a57` is (9, 0, 2). Empty for a build that names no release."""
    leading = re.match(r"n?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in leading[1].split(".")) if leading else ()


def is_safe(numbers: Numbers) -> bool:
    """Whether the known holes are closed in this release. One that names no release cannot be known to be safe."""
    if numbers >= SAFE_FROM:
        return True
    branch = (*numbers, 0)[:2]
    return branch in SAFE_BRANCHES and (*numbers, 0, 0)[2] >= SAFE_BRANCHES[branch]


def is_old(numbers: Numbers) -> bool:
    """Whether a release lacks what media tasks ask of it."""
    return () < numbers < OLDEST_VERSION
