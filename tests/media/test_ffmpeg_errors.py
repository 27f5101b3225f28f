from __future__ import annotations

import signal

import pytest

from callsheet.media.errors import MediaError
from callsheet.media.ffmpeg_errors import error_of, last_words
from callsheet.media.progress import Progress, Reader

NOT_WHOLE = """[mov,mp4,m4a,3gp,3g2,mj2 @ 0x55d] moov atom not found
[in#0 @ 0x55d] Error opening input: Invalid data found when processing input
Error opening input file file:/srv/work/0199f0c2/source.mp4.
Error opening input files: Invalid data found when processing input
"""


@pytest.mark.parametrize(
    ("code", "message", "expected", "again"),
    [
        (183, NOT_WHOLE, "corrupt_input", False),
        (228, "[out#0 @ 0x1] Error writing trailer: No space left on device\nConversion failed!", "disk_full", True),
        (234, "[png @ 0x1] Picture size 100000x100000 is invalid", "input_too_large", False),
        (244, "x264 [error]: malloc of size 9 failed\nError: Cannot allocate memory", "media_limit", False),
        (234, "Stream map '0:a:0' matches no streams.", "no_such_stream", False),
        (8, "Unknown encoder 'libnone'", "invalid_output", False),
        (1, "something nobody has seen", "ffmpeg_failed", False),
        (1, "", "ffmpeg_failed", False),
        (126, "sandbox: unshare: Operation not permitted", "ffmpeg_failed", False),
        (-signal.SIGXFSZ, "", "output_too_large", False),
        (-signal.SIGSEGV, "", "ffmpeg_crashed", True),
    ],
)
def test_each_end_has_its_class(code: int, message: str, expected: str, again: bool) -> None:  # noqa: FBT001
    error = error_of(code, message)
    assert (error.code, error.retryable) == (expected, again)
    assert str(error)


def test_a_crash_is_tried_again_once() -> None:
    error = error_of(-signal.SIGSEGV, "")
    assert error.retry_after(1)
    assert not error.retry_after(2)
    assert not MediaError("x").retry_after(1)


def test_the_telling_line_is_chosen() -> None:
    assert last_words(NOT_WHOLE) == "moov atom not found"


def test_addresses_keys_and_folders_are_not_told() -> None:
    stderr = (
        "[https @ 0x1] https://u:pw@b.example.org/v.mp4?X-Amz-Signature=abc123&X-Amz-Credential=AK1: 403 token=t0k "
        "in file:/srv/secret-folder/a/source.mp4"
    )
    words = last_words(stderr)
    for secret in ("abc123", "AK1", "pw@", "t0k", "example.org", "secret-folder"):
        assert secret not in words
    assert "403" not in words or "<address>" in words
    assert "source.mp4" in words


def test_progress_never_falls_and_ends_below_a_hundred() -> None:
    reports: list[Progress] = []
    reader = Reader(10.0, reports.append)
    for out_time_us in ("N/A", "1000000", "5000000", "4000000", "20000000"):
        for line in (f"frame={len(reports)}", f"out_time_us={out_time_us}", "speed= 2.5x", "progress=continue"):
            reader.take(line + "\n")
    assert [progress.percent for progress in reports] == [0, 10, 50, 50, 99.9]
    assert reports[2].eta_s == pytest.approx(2)
    assert not reader.has_ended
    reader.take("progress=end\n")
    assert reader.has_ended


def test_progress_without_a_length_has_no_percent() -> None:
    reports: list[Progress] = []
    reader = Reader(0.0, reports.append)
    reader.take("out_time_us=5\n")
    reader.take("progress=continue\n")
    assert reports[0].percent is None
    assert reports[0].eta_s is None
