"""Where two boxes are to one another."""

from __future__ import annotations

from .records import Box

ROW_PX = 48
_LAST_PX = 65_535  # no frame is larger; what lies beyond is one row
_FAR_HEIGHTS = 6  # how far noisy text may move between two frames, in its own heights
_FAR_ROWS = 5


def at_same_place(one: Box, other: Box) -> bool:
    """On each axis they share half of the smaller. A line that lost a word is still where it was."""
    return _share_half(one[1], one[3], other[1], other[3]) and _share_half(one[0], one[2], other[0], other[2])


def is_same_box(one: Box, other: Box) -> bool:
    """Both lie for the greater part in one another: two readings of the same pixels."""
    across = _overlap(one[0], one[2], other[0], other[2])
    down = _overlap(one[1], one[3], other[1], other[3])
    shared = across * down
    return 2 * shared >= max(one[2], 1) * max(one[3], 1) and 2 * shared >= max(other[2], 1) * max(other[3], 1)


def is_cut(whole: Box, part: Box) -> bool:
    """The part begins or ends where the whole does, and is on the same line."""
    height = min(whole[3], part[3]) or 1
    begins = 2 * abs(whole[0] - part[0]) <= height
    ends = 2 * abs(whole[0] + whole[2] - part[0] - part[2]) <= height
    return (begins or ends) and part[2] < whole[2] and at_same_place(whole, part)


def may_have_moved(one: Box, other: Box) -> bool:
    """The same size, up, down or aside by a few lines: text that scrolls."""
    height, width = one[3] or 1, one[2] or 1
    if not (height <= 2 * other[3] <= 4 * height and 3 * width <= 4 * other[2] and 3 * other[2] <= 4 * width):
        return False
    aside, down = abs(one[0] - other[0]), abs(one[1] - other[1])
    if aside > down:
        aside, down = down, aside
    return down <= _FAR_HEIGHTS * height and aside <= height


def distance(one: Box, other: Box) -> int:
    """Between their corners, along both axes."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def rows_of(box: Box) -> range:
    """The bands of the picture in which it lies; boxes at the same place have one in common."""
    first = min(max(box[1], 0), _LAST_PX) // ROW_PX
    return range(first, min(max(box[1] + box[3], 0), _LAST_PX) // ROW_PX + 1)


def rows_near(box: Box) -> range:
    """Those, and the ones from which it may have moved."""
    rows = rows_of(box)
    return range(max(0, rows.start - _FAR_ROWS), rows.stop + _FAR_ROWS)


def _overlap(start: int, size: int, other_start: int, other_size: int) -> int:
    return max(0, min(start + max(size, 1), other_start + max(other_size, 1)) - max(start, other_start))


def _share_half(start: int, size: int, other_start: int, other_size: int) -> bool:
    """Written out, for it is asked more often than anything else: calls of `min` and `max` took half of all time."""
    if start > other_start:
        start, size, other_start, other_size = other_start, other_size, start, size
    size, other_size = size or 1, other_size or 1
    reach = start + size - other_start
    if reach >= other_size:
        return True
    return 2 * reach >= size or 2 * reach >= other_size
