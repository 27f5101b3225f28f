-- Callbacks are claimed by destination, so that the backlog of one does not hide the others.
ALTER TABLE job_outbox_events ADD COLUMN destination TEXT NOT NULL DEFAULT '';
DROP INDEX job_outbox_events_due;
CREATE INDEX job_outbox_events_due ON job_outbox_events (requester_id, destination, run_at, seq) WHERE status = 'pending';
CREATE INDEX job_outbox_events_of_requester ON job_outbox_events (requester_id, seq);
