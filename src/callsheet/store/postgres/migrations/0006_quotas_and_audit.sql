-- Queued jobs of a requester, to be counted against its quota. Jobs without one are not in it, and pay nothing for it.
CREATE INDEX inbox_jobs_queued_of_requester ON inbox_jobs (requester_id)
    WHERE requester_id <> '' AND status = 'queued';

-- Security-relevant acts: written, read and one day pruned, never changed. `requester_id` is the tenant that may see it.
CREATE TABLE audit_log (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    requester_id text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    actor text COLLATE "C" NOT NULL,
    target text NOT NULL,
    outcome text NOT NULL,
    address text NOT NULL,
    request_id text NOT NULL,
    details text NOT NULL
);

CREATE INDEX audit_log_by_time ON audit_log (at, seq);
CREATE INDEX audit_log_of_requester ON audit_log (requester_id, at, seq);
CREATE RULE audit_log_is_append_only AS ON UPDATE TO audit_log DO INSTEAD NOTHING;
