"""Guards of contract 002 to the letter: moves made in SQL, who reads what, and frames of uneven length."""

from __future__ import annotations

from tests.mutations.guard import Guard

MOVES = "tests/catalog/test_jobs_moves.py"


def moves(name: str, before: str, after: str, test: str) -> Guard:
    return Guard("kernel", f"SQL workers, {name}", "catalog/postgres/jobs_moves.sql", before, after, f"{MOVES}::{test}")


def beside(name: str, before: str, after: str, test: str) -> Guard:
    return moves(name, before, after, test)._replace(test=f"tests/catalog/test_jobs_beside.py::{test}")


UNEVEN = "tests/media/test_uneven.py"
MERGE = "tests/media/reading/test_merge.py"
LETTER_CORTANA = [
    Guard(
        "kernel",
        "parts that an edge cut belong to the whole",
        "media/reading/passing.py",
        "return last.form == piece.form or _is_cut(last, piece, width)",
        "return False",
        f"{MERGE}::test_a_ticker_of_four_headlines_is_four_texts",
    ),
    Guard(
        "kernel",
        "long words are judged by their letters",
        "media/ocr/tesseract.py",
        "if not doubtful or (iterator := api.GetIterator()) is None:",
        "if (iterator := api.GetIterator()) is not None or True:",
        "tests/media/ocr/test_passes.py::test_lines_of_a_terminal_are_not_lost_for_one_letter_of_a_path",
    ),
    Guard(
        "kernel",
        "uneven frames, what stands over a tick is sampled",
        "media/sampling/decode.py",
        "if last_before is not None and end >= next_ticks + period:",
        "if False:",
        f"{UNEVEN}::test_what_stands_for_long_is_sampled_and_lasts",
    ),
    Guard(
        "kernel",
        "uneven frames, the last segment ends with the source",
        "media/hls.py",
        "lengths[-1] = max(LEAST_S, end_s - sum(lengths[:-1]))",
        "pass",
        f"{UNEVEN}::test_a_playlist_ends_when_the_source_does",
    ),
    Guard(
        "kernel",
        "a replaced original is found",
        "contracts/cortana/scan.py",
        "if existing is None or not (_is_left(existing) or _is_replaced(existing, info)):",
        "if existing is None or not _is_left(existing):",
        "tests/contracts/cortana/test_scan.py::test_an_original_that_was_half_written_is_found_when_it_is_whole",
    ),
    moves(
        "a claim of ours is not theirs",
        "IF job.worker_id NOT LIKE 'sql:%' OR job.worker_id LIKE '%~%' OR mine",
        "IF mine",
        "test_a_worker_of_ours_keeps_its_claim",
    ),
    moves(
        "a lost claim is known",
        "OR mine < job.claim_version\n                OR NEW.locked_by",
        "OR NEW.locked_by",
        "test_a_worker_that_died_is_recovered_and_what_it_says_later_is_refused",
    ),
    moves(
        "only legal moves",
        "AND NOT format('%s>%s', OLD.status, NEW.status) = ANY (:legal_moves)",
        "AND NOT format('%s>%s', OLD.status, NEW.status) = ANY (:legal_moves || 'done>queued'::text)",
        "test_illegal_moves_are_refused",
    ),
    moves(
        "a job that waits is not claimed",
        "IF job.held = 'dependency' THEN",
        "IF false THEN",
        "test_priority_and_depends_on",
    ),
    Guard(
        "kernel",
        "SQL workers, jobs are read as their videos are",
        "catalog/postgres/jobs.sql",
        "AND ((SELECT r.owner_id FROM catalog_reader r) IS NULL",
        "AND (true",
        f"{MOVES}::test_jobs_are_read_as_their_videos_are",
    ),
    Guard(
        "kernel",
        "SQL workers, words are read as their videos are",
        "catalog/postgres/access.sql",
        "CREATE POLICY workers_read ON search_videos FOR SELECT TO service_role\n    USING (",
        "CREATE POLICY workers_read ON search_videos FOR SELECT TO service_role\n    USING (true OR ",
        "tests/catalog/test_row_security.py::test_a_worker_for_a_user_reads_no_words_of_others",
    ),
    Guard(
        "kernel",
        "a box written by SQL is read",
        "catalog/records.py",
        "if isinstance(number, int | float) else 0",
        "",
        "tests/catalog/test_refresh.py::test_a_box_as_a_worker_by_sql_writes_it_is_read",
    ),
    Guard(
        "kernel",
        "boxes are whole pixels",
        "catalog/records.py",
        "round(min(max(number, -MOST_PX), MOST_PX))",
        "number",
        "tests/catalog/test_refresh.py::test_a_box_as_a_worker_by_sql_writes_it_is_read",
    ),
    Guard(
        "kernel",
        "a clip of another video is not taken over",
        "catalog/postgres/jobs.sql",
        "        WHERE clips.video_id = EXCLUDED.video_id;",
        ";",
        "tests/catalog/test_jobs_insert.py::test_a_clip_that_is_asked_for_again_has_a_job_more_and_one_row",
    ),
    Guard(
        "kernel",
        "a clip keeps the job that cuts it",
        "catalog/postgres/jobs.sql",
        "THEN clips.job_id ELSE EXCLUDED.job_id END",
        "THEN EXCLUDED.job_id ELSE EXCLUDED.job_id END",
        "tests/catalog/test_jobs_insert.py::test_a_clip_that_is_asked_for_again_has_a_job_more_and_one_row",
    ),
    Guard(
        "kernel",
        "what is known of a clip stays",
        "contracts/cortana/clip.py",
        "await _before(stage, order) or (start, end)",
        "(start, end)",
        "tests/contracts/cortana/test_clips.py::test_a_clip_of_a_video_of_unknown_length_is_not_cut_again_either",
    ),
    Guard(
        "kernel",
        "the errors of workers by SQL are told word for word",
        "contracts/cortana/models.py",
        '**by_sql.get("sql", {}),',
        "",
        "tests/catalog/test_jobs_beside.py::test_the_api_tells_the_error_and_the_retries_as_sql_does",
    ),
    Guard(
        "kernel",
        "a canceled job tells no older error",
        "catalog/postgres/jobs.sql",
        "|| CASE j.status WHEN 'canceled' THEN '{}' ELSE",
        "|| CASE j.status WHEN 'nothing' THEN '{}' ELSE",
        "tests/catalog/test_jobs_beside.py::test_the_api_tells_the_error_and_the_retries_as_sql_does",
    ),
    beside(
        "a reading by SQL is the last one",
        "SET coverage = v.coverage - 'detections'",
        "SET coverage = v.coverage",
        "test_a_reading_by_sql_is_the_last_one",
    ),
    beside(
        "an active job of the type is named",
        "IF FOUND THEN\n            RAISE unique_violation",
        "IF false THEN\n            RAISE unique_violation",
        "test_a_failed_job_stays_so_beside_an_active_one",
    ),
    Guard(
        "kernel",
        "the list of videos has those of the status",
        "catalog/sqlite/queries.sql",
        "AND (?3 IS NULL OR status = ?3) AND instr(title_folded, ?4) > 0\n    AND ((owner_id",
        "AND (?3 IS NULL OR status >= ?3) AND instr(title_folded, ?4) > 0\n    AND ((owner_id",
        "tests/contracts/test_lists_agree.py::test_a_video_is_in_the_list_of_the_status_that_its_body_shows_alone",
    ),
    Guard(
        "kernel",
        "uneven frames, the last picture counts and not the last that is decoded",
        "media/probe_child.py",
        'return duration_s and max(duration_s, timing.get("shown_s") or 0.0)',
        "return duration_s",
        f"{UNEVEN}::test_pictures_that_are_not_decoded_in_their_order_are_all_shown",
    ),
]
