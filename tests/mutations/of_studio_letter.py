"""Guards of the browser's part in contract 004: its client of live jobs, and the pages that show them."""

from __future__ import annotations

from tests.mutations.guard import Guard

SILENCE = "tests/browser/test_live_silence.py::test_"
DEAD_LINE = f"{SILENCE}a_silent_connection_is_given_up_and_goes_on_where_it_was"
COMPOSE = "tests/browser/test_compose_live.py::test_"
RESUMED = f"{COMPOSE}nothing_is_resumed_where_nothing_was_made_or_by_who_may_only_look"
LOOKS = "tests/browser/test_studio_looks.py::test_"
MARKS = f"{LOOKS}marks_of_an_axis_differ_and_counts_are_whole"
NO_ANSWER = f"{SILENCE}a_server_that_takes_connections_and_says_nothing_is_given_up"


def in_the_page(name: str, file: str, before: str, after: str, test: str) -> Guard:
    return Guard("kernel", name, f"studio/static/{file}", before, after, test)


STUDIO_LETTER = [
    in_the_page(
        "a connection that falls silent is given up",
        "live.js",
        "      watchdog = setTimeout(giveUp, silenceMs);\n",
        "",
        DEAD_LINE,
    ),
    in_the_page(
        "25 seconds are a silence",
        "live.js",
        "export const LIVE_SILENCE_MS = 25_000;",
        "export const LIVE_SILENCE_MS = 60_000;",
        DEAD_LINE,
    ),
    in_the_page(
        "an answer that does not begin is given up",
        "live.js",
        "let watchdog = setTimeout(giveUp, silenceMs);",
        "let watchdog = 0;",
        NO_ANSWER,
    ),
    in_the_page(
        "a comment is a sign of life",
        "live.js",
        "      clearTimeout(watchdog);\n      for (const event of chunk) {\n",
        "      for (const event of chunk) {\n        clearTimeout(watchdog);\n",
        f"{SILENCE}a_keepalive_is_a_sign_of_life",
    ),
    in_the_page("a follower closes its connection", "live.js", "    open.abort();\n  }\n", "  }\n", DEAD_LINE),
    in_the_page("a stream goes on after its last id", "live.js", "    place.last = id || place.last;\n", "", DEAD_LINE),
    in_the_page("a follower names its window", "live.js", "window: place.window, ", "", DEAD_LINE),
    in_the_page("five attempts and no more", "live.js", "attempt > ATTEMPTS || ", "", NO_ANSWER),
    in_the_page("the end of a job ends its stream", "live.js", "type in ENDS;", "false;", DEAD_LINE),
    in_the_page(
        "who may only look is not offered to resume",
        "pages/compose.js",
        "writer && job.canResume ? resume",
        "job.canResume ? resume",
        RESUMED,
    ),
    in_the_page(
        "a job with nothing made is not resumed",
        "pages/compose.js",
        "writer && job.canResume ? resume",
        "writer ? resume",
        RESUMED,
    ),
    in_the_page(
        "a state is said once",
        "pages/job.js",
        "ours.includes(state.word.toLowerCase())",
        "ours.includes(state.word)",
        f"{LOOKS}a_job_says_its_state_once",
    ),
    in_the_page(
        "a cancelled stage is no failed one",
        "components/stage_track.js",
        'canceled: "off" };',
        'canceled: "bad" };',
        f"{LOOKS}a_cancelled_stage_is_not_red",
    ),
    in_the_page("marks have the digits they need", "charts.js", "number(at, at ? digits : 0)", "compact(at)", MARKS),
    in_the_page("counts are whole", "charts.js", "rows.map(total), 0), true)", "rows.map(total), 0))", MARKS),
    in_the_page(
        "short times are told apart",
        "format.js",
        "clock(from) === clock(to) ? [FINE",
        "false ? [FINE",
        f"{LOOKS}both_ends_of_the_attempts_scale_differ",
    ),
    in_the_page(
        "a phone's list has progress",
        "styles/pages.css",
        ".progresscell.phone { display: grid;",
        ".progresscell.phone { display: none;",
        f"{LOOKS}the_list_shows_progress_on_a_phone",
    ),
    in_the_page(
        "a phone's dead letters can be read",
        "pages/dead_letters.js",
        'badge(letter.status), class: "extra" }',
        "badge(letter.status) }",
        f"{LOOKS}dead_letters_can_be_read_on_a_phone",
    ),
    in_the_page(
        "a stage that begins is shown",
        "pages/job.js",
        'if (event.type === "stage" && this.state.phase !== null) this.#later();',
        "",
        f"{LOOKS}a_live_jobs_stages_have_plain_words_and_move_as_they_come",
    ),
    in_the_page(
        "a job offers one way first",
        "pages/job.js",
        'this.#resumable ? "" : "first"',
        '"first"',
        f"{LOOKS}a_failed_job_offers_one_way_first",
    ),
    in_the_page(
        "a server that is back is followed again",
        "pages/compose.js",
        "onConnection((isGone) => isGone || again())",
        "() => undefined",
        f"{COMPOSE}a_server_that_stays_away_is_told_and_its_return_is_noticed",
    ),
    in_the_page(
        "progress is drawn once in a frame",
        "pages/compose/progress.js",
        "    if (waiting) return;\n",
        "",
        f"{COMPOSE}progress_is_drawn_once_in_a_frame",
    ),
    in_the_page(
        "a message is of its stage in the page",
        "live.js",
        '(beginsStage(type, data) ? "" : state.message)',
        "state.message",
        f"{COMPOSE}percent_message_and_warnings_come_live_over_the_contracts_stream",
    ),
]
