"""Which versions of ffmpeg are safe for strangers' files, and which are new enough. Pure; runs no program.

CVE-2026-8461, a heap overflow that an AVI, MKV or MOV file can cause, has a fix in each branch: 8.0.3, 8.1.2 and 9.0.
`tools/check_pins.py` fails `make check` when a pinned wheel carries an older ffmpeg.
"""

from __future__ import annotations

import re

SAFE_BRANCHES = {(8, 0): 3, (8, 1): 2}  # a branch, and its first patch release with the fix
SAFE_FROM = (9, 0)  # this release and all later ones
SAFE_VERSIONS = "8.0.3, 8.1.2 or 9.0"  # the same for people
# 7.0 is the oldest that the tests are run with; 5.1 loses the end of an HLS whose frames are uneven
OLDEST_VERSION = (7, 0)

Numbers = tuple[int, ...]


def numbers_of(version: str) -> Numbers:
    """Return a version as numbers: `n9.0.2-17-g2a57` is (9, 0, 2). Empty for a build without a release number."""
    leading = re.match(r"n?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in leading[1].split(".")) if leading else ()


def is_safe(numbers: Numbers) -> bool:
    """Whether this release has the fixes for known holes. A build without a release number does not count as safe."""
    if numbers >= SAFE_FROM:
        return True
    branch = (*numbers, 0)[:2]
    return branch in SAFE_BRANCHES and (*numbers, 0, 0)[2] >= SAFE_BRANCHES[branch]


def is_old(numbers: Numbers) -> bool:
    """Whether this release lacks features of media tasks."""
    return () < numbers < OLDEST_VERSION
