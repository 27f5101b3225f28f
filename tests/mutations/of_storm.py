"""Guards that a storm proves beside their tests: `python -m tests.storm --without "…"` (see tests/storm/without.py)."""

from __future__ import annotations

from tests.mutations.guard import LEASE, OUTBOX, Guard

HELD, FREE = "j.claim_version = a.claim_version AND ", "j.claim_version = h.claim_version AND "
BEAT = (
    "    SELECT j.job_id, j.claim_version, j.cancel_requested_at IS NOT NULL AS to_cancel\n"
    "    FROM unnest($2::uuid[], $3::integer[]) AS a (job_id, claim_version) JOIN inbox_jobs j ON j.job_id = a.job_id\n"
    f"    WHERE {HELD}j.status = 'running'\n"
    "), free AS MATERIALIZED (\n"
    "    SELECT j.ctid AS row_id FROM held h JOIN inbox_jobs j ON j.job_id = h.job_id\n"
    f"    WHERE {FREE}j.status = 'running' ORDER"
)

STORM = [
    Guard(
        "kernel",
        "lost leases are reaped",
        "engine/housekeeping.py",
        "reaped=await self.reap(seen_at=sight.at, now=now) if sight.certain else 0,",
        "reaped=0,",
        "tests/engine/test_housekeeping.py::test_one_sweep_does_all_chores",
    ),
    Guard(
        "sqlite",
        "callbacks are written with their move",
        "store/sqlite/settle.py",
        "        db.execute(Q.add_outbox, "
        "outbox_row(out, s.job_id, requester_id, out.body_at(max(now, event_ms)), now))\n"
        "    if s.status",
        "        row = outbox_row(out, s.job_id, requester_id, out.body_at(max(now, event_ms)), now)\n"
        "        later = settle.__dict__.setdefault('later', [])\n"  # the next move of this process brings it along
        "        later.append(row)\n"
        "        if len(later) > 1:\n"
        "            db.execute(Q.add_outbox, later.pop(0))\n"
        "    if s.status",
        OUTBOX,
    ),
    Guard(
        "postgres",
        "fence of heartbeat",  # with the answer, which says whose claim the row is of: without it nobody could notice
        "store/postgres/queries.sql",
        BEAT,
        BEAT.replace(HELD, "")
        .replace(FREE, "")
        .replace("j.job_id, j.claim_version, j", "j.job_id, a.claim_version, j"),
        f"{LEASE}::test_a_stale_claim_cannot_heartbeat",
    ),
    Guard(
        "postgres",
        "callbacks are written with their move",
        "store/postgres/settle.py",
        "        return await _settle(db, settlements, now, lined_up)\n    except",
        "        later = settle.__dict__.setdefault('later', [])\n"
        "        rows = list({row[0]: row for row in later}.values())\n"
        "        later.clear()\n"
        "        known = await _existing_callbacks(db, [row[:2] for row in rows])\n"
        "        if rows := [row for row in rows if row[:2] not in known]:\n"
        "            await db.fetch(Q.tell_claims, 0, *map(list, zip(*rows)))\n"
        "        answers = await _settle(db, [s._replace(outbox=()) for s in settlements], now, lined_up)\n"
        "        later += [\n"
        "            (out.event_id, s.job_id, 'storm', out.endpoint, out.body_at(0), out.destination)\n"
        "            for s, answer in zip(settlements, answers) if answer is Settled.APPLIED for out in s.outbox\n"
        "        ]\n"
        "        return answers\n    except",
        OUTBOX,
    ),
]
