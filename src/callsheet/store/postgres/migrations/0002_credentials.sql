-- Encrypted credentials of jobs, beside the hot table: claim and get never read them. The columns are the contract's.
-- A job that has some is marked `has_dependents`: something hangs on its end, so that `succeed` leaves it to `settle`.
CREATE TABLE job_credentials (
    job_id uuid PRIMARY KEY,
    requester_id text COLLATE "C" NOT NULL,
    credential_version integer NOT NULL,
    storage_creds_encrypted text NOT NULL,
    storage_creds_dek_wrapped text NOT NULL,
    storage_creds_kek_id text COLLATE "C" NOT NULL,
    storage_creds_encryption_version integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_limit = 2000);

CREATE INDEX job_credentials_under_kek ON job_credentials (storage_creds_kek_id, job_id);
