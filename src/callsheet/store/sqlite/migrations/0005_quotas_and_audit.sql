-- Queued jobs of a requester, to be counted against its quota. Jobs without one are not in it, and pay nothing for it.
CREATE INDEX inbox_jobs_queued_of_requester ON inbox_jobs (requester_id)
    WHERE requester_id <> '' AND status = 'queued';

-- Security-relevant acts: written, read and one day pruned, never changed. `requester_id` is the tenant that may see it.
CREATE TABLE audit_log (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    requester_id TEXT NOT NULL,
    action TEXT NOT NULL,
    actor TEXT NOT NULL,
    target TEXT NOT NULL,
    outcome TEXT NOT NULL,
    address TEXT NOT NULL,
    request_id TEXT NOT NULL,
    details TEXT NOT NULL
);

CREATE INDEX audit_log_by_time ON audit_log (at, seq);
CREATE INDEX audit_log_of_requester ON audit_log (requester_id, at, seq);
CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE ON audit_log BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
