from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callsheet.media.arguments import RUNGS, fit, ladder

SIDE = st.integers(2, 8192)
WISH = st.one_of(st.just(0), SIDE)


@given(st.tuples(SIDE, SIDE), WISH, WISH, st.booleans())
def test_a_size_is_even_and_larger_than_the_source_only_if_asked(
    shown: tuple[int, int],
    width: int,
    height: int,
    upscale: bool,  # noqa: FBT001
) -> None:
    size = fit(shown, width, height, upscale=upscale)
    assert all(side % 2 == 0 and side >= 2 for side in size)
    if not upscale:
        assert all(side <= max(2, had) for side, had in zip(size, shown, strict=True))


@given(st.tuples(SIDE, SIDE))
def test_a_ladder_never_climbs_above_its_source(shown: tuple[int, int]) -> None:
    rungs = ladder(shown)
    assert rungs
    assert len({rung.name for rung in rungs}) == len(rungs)
    for rung in rungs:
        assert rung.width % 2 == rung.height % 2 == 0
        assert rung.width <= max(2, shown[0])
        assert rung.height <= max(2, shown[1])
        assert rung.video_kbps > 0


def test_a_ladder_goes_by_the_shorter_side() -> None:
    assert [(rung.name, rung.width, rung.height) for rung in ladder((1080, 1920))] == [
        ("1080p", 1080, 1920),
        ("720p", 720, 1280),
        ("480p", 480, 854),
        ("360p", 360, 640),
    ]
    assert [rung.name for rung in ladder((3840, 2160))] == [f"{rung}p" for rung in RUNGS]
    assert [(rung.width, rung.height) for rung in ladder((321, 181))] == [(320, 180)]


def test_a_picture_fits_its_frame_and_keeps_its_shape() -> None:
    assert fit((1920, 1080), width=1280) == (1280, 720)
    assert fit((1080, 1920), 1280, 720) == (404, 720)
    assert fit((320, 180), width=1280) == (320, 180)
    assert fit((320, 180), width=1280, upscale=True) == (1280, 720)
    assert fit((321, 181)) == (320, 180)
