"""The films: one per kind of text that is seen in videos. Times in seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PIL import Image, ImageDraw

from .drawing import BLACK, WHITE, Colour, Film, Line, moving, plain, scenes, width_of

SANS, BOLD, SERIF, MONO = "DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono"
WORDS_A = ("Amber", "Bridge", "Copper", "Desert", "Ember", "Forest", "Garden", "Harbor", "Island", "Jungle")
WORDS_B = ("morning", "river", "signal", "winter")
COLOURS: tuple[Colour, ...] = (
    (52, 73, 94),
    (120, 66, 18),
    (20, 90, 50),
    (99, 57, 116),
    (110, 44, 0),
    (27, 79, 114),
    (100, 100, 40),
    (60, 60, 60),
)


def centred(text: str, times: tuple[float, float], y: float, line: Line, width: int = 1280) -> Line:
    """A line in the middle of the picture, otherwise like another."""
    x = (width - width_of(text, line.px, line.font)) / 2
    return line._replace(text=text, start_s=times[0], end_s=times[1], at=(x, y))


def one_after_another(texts: Sequence[str], each_s: float, y: float, like: Line, width: int = 1280) -> tuple[Line, ...]:
    """Return lines that replace one another at the same position."""
    return tuple(
        centred(text, (at * each_s, (at + 1) * each_s), y, like, width) for at, text in enumerate(texts) if text
    )


def added(
    texts: Sequence[str], times: tuple[float, float, float], corner: tuple[float, float], like: Line
) -> list[Line]:
    """Return lines that appear below one another and stay; `times` are the first, the step and the end."""
    first, step, end = times
    return [
        like._replace(text=text, start_s=first + at * step, end_s=end, at=(corner[0], corner[1] + at * like.px * 1.6))
        for at, text in enumerate(texts)
    ]


def line(px: int, colour: Colour = BLACK, font: str = "", outline: int = 0) -> Line:
    """How a line looks; text, time and place come later."""
    return Line("", 0, 0, (0, 0), px, colour, font, outline)


def slide() -> Film:
    title = centred("Quarterly results 2026", (0, 8), 80, line(64, (20, 40, 90), BOLD))
    items = ("Revenue grew by 14 percent", "Two new offices opened", "Hiring continues in spring")
    return Film((title, *added(items, (1.5, 2, 8), (160, 260), line(40, font=SANS))), plain((250, 250, 248)), 8)


def code() -> Film:
    texts = ("def greet(name):", "    message = 'Hello ' + name", "    print(message)", "greet('Marta')")
    return Film(tuple(added(texts, (0.6, 1.5, 7), (80, 120), line(30, (220, 220, 200), MONO))), plain((30, 30, 36)), 7)


def outlined_caption() -> Film:
    texts = ("Welcome to the workshop", "Today we build a table", "Measure twice, cut once", "Sand every edge smooth")
    captions = one_after_another(texts, 2, 600, line(44, WHITE, BOLD, 3))
    return Film(captions, moving, 8, 15, moves=True)


def lower_third() -> Film:
    bar = line(40, WHITE, SANS)._replace(box=(180, 30, 40))
    name = bar._replace(text="Dr. Helena Brandt", start_s=1.5, end_s=5, at=(120, 520))
    role = bar._replace(text="Marine biologist", start_s=1.5, end_s=5, at=(120, 600), px=28, box=(40, 40, 50))
    return Film((name, role), moving, 7, 15, moves=True)


def social_post() -> Film:
    def card(time_s: float, size: tuple[int, int]) -> Image.Image:
        picture = plain((230, 236, 240))(time_s, size)
        ImageDraw.Draw(picture).rounded_rectangle((240, 100, 1040, 600), 24, fill=WHITE, outline=(200, 205, 210))
        ImageDraw.Draw(picture).ellipse((280, 140, 360, 220), fill=(90, 140, 200))
        return picture

    lines = (
        Line("@marta_builds", 0.4, 8, (390, 160), 36, (20, 20, 20), BOLD),
        Line("New workshop opens on Friday", 2, 8, (290, 270), 36, (30, 30, 30)),
        Line("#woodwork #openday", 3.6, 8, (290, 350), 36, (29, 110, 190)),
        Line("https://example.org/open", 5.2, 8, (290, 430), 36, (29, 110, 190)),
    )
    return Film(lines, card, 8)


def terminal() -> Film:
    texts = ("$ make test", "collected 214 items", "214 passed in 12.31s", "$ git push origin main")
    return Film(tuple(added(texts, (0.5, 1.4, 7), (40, 60), line(22, (60, 220, 90), MONO))), plain((8, 8, 8)), 7)


def table() -> Film:
    def grid(time_s: float, size: tuple[int, int]) -> Image.Image:
        picture = plain((252, 252, 252))(time_s, size)
        draw = ImageDraw.Draw(picture)
        for row in range(5):
            draw.line((140, 130 + row * 100, 1140, 130 + row * 100), fill=(150, 150, 150), width=2)
        for column in range(3):
            draw.line((140 + column * 500, 130, 140 + column * 500, 530), fill=(150, 150, 150), width=2)
        return picture

    cells = (("City", "Population"), ("Lisbon", "545923"), ("Krakow", "803283"), ("Bergen", "291940"))
    lines = [
        Line(text, 0.3 + 1.6 * row, 7, (180 + 500 * column, 160 + 100 * row), 36, (30, 30, 30), SANS)
        for row, texts in enumerate(cells)
        for column, text in enumerate(texts)
    ]
    return Film(tuple(lines), grid, 7)


def low_contrast() -> Film:
    texts = ("Quiet words on grey", "Barely darker than paper", "Still meant to be read")
    return Film(one_after_another(texts, 2.2, 320, line(48, (150, 150, 150), SANS)), plain((190, 190, 190)), 6.6)


def credits() -> Film:  # noqa: A001 - what they are called
    names: tuple[str, ...] = (
        "Directed by Ana Lopes",
        "Written by Karl Weiss",
        "Music by Iris Novak",
        "Edited by Tom Hale",
    )
    names += ("Sound by Rosa Diaz", "Lights by Piet Maas", "Produced by Lena Falk", "Made in Gothenburg")
    like = line(40, WHITE, SERIF)._replace(scroll=120.0)
    lines = [centred(name, (0, 12), 700 + at * 110, like) for at, name in enumerate(names)]
    return Film(tuple(lines), plain((0, 0, 0)), 12, 12)


def fade() -> Film:
    like = line(56, WHITE, SERIF)._replace(fade_s=0.8)
    first = centred("Once there was a harbor", (0.5, 3.5), 320, like)
    second = centred("and nobody left it", (4, 7.5), 320, like)
    return Film((first, second), plain((20, 24, 40)), 8, 15)


def small_captions() -> Film:
    texts = ("Where did you leave the keys?", "On the kitchen table.", "They are not there.", "Then ask your brother.")
    captions = one_after_another(texts, 1.8, 1000, line(24, WHITE, SANS, 2), 1920)
    return Film(captions, scenes(COLOURS[2:3], 60), 7.2, 15, size=(1920, 1080))


def price() -> Film:
    what = Line("Walnut desk lamp", 0, 6, (160, 200), 52, BLACK, SANS)
    before = Line("$19.99", 0, 3, (160, 320), 72, (170, 20, 20), BOLD)
    return Film((what, before, before._replace(text="$24.50", start_s=3, end_s=6)), plain((255, 252, 240)), 6)


def two_at_once() -> Film:
    news = ("Storm warning for the coast", "Trains resume at noon", "Museum open until ten")
    ticker = one_after_another(news, 3, 640, line(32, BLACK)._replace(box=(250, 220, 60)))
    texts = ("I was on the pier", "when the wind turned", "and the boats came in", "one after another")
    captions = one_after_another(texts, 2.25, 500, line(40, WHITE, BOLD, 3))
    return Film((*ticker, *captions), scenes(COLOURS[5:6], 60), 9)


def german() -> Film:
    texts = ("Größe und Maße prüfen", "Schöne Grüße aus München", "Übung macht den Meister")
    return Film(one_after_another(texts, 2, 300, line(50, (10, 10, 60), SANS)), plain((235, 240, 250)), 6)


def comes_back() -> Film:
    texts = ("Press any key to start", "", "Press any key to start", "", "Press any key to start", "Game over")
    return Film(one_after_another(texts, 1.2, 400, line(48, (255, 240, 120))), scenes(COLOURS[3:4], 60), 7.2)


def busy_caption() -> Film:
    def street(time_s: float, size: tuple[int, int]) -> Image.Image:
        return moving(time_s * 9, size)

    texts = ("Mind the gap", "Doors are closing", "Next stop Harbor Street", "Change here for the ferry")
    return Film(one_after_another(texts, 1.5, 560, line(44, WHITE, BOLD, 3)), street, 6, 15, moves=True)


def captions_40() -> Film:
    texts = [f"{a} {b}" for b in WORDS_B for a in WORDS_A]
    captions = one_after_another(texts, 1.5, 460, line(32, WHITE, BOLD, 2), 960)
    return Film(captions, scenes(COLOURS, 7.5), 60, fps=12, size=(960, 540), inset=True)


CAPTIONS_40 = "captions_40"
FILMS: dict[str, Callable[[], Film]] = {
    made.__name__: made
    for made in (
        *(slide, code, outlined_caption, lower_third, social_post, terminal, table, low_contrast, credits, fade),
        *(small_captions, price, two_at_once, german, comes_back, busy_caption, captions_40),
    )
}
ALL: tuple[str, ...] = tuple(name for name in FILMS if name != CAPTIONS_40)
