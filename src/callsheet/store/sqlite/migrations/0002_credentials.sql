-- Encrypted credentials of jobs, beside the hot table: claim and get never read them. The columns are the contract's.
CREATE TABLE job_credentials (
    job_id TEXT NOT NULL PRIMARY KEY,
    requester_id TEXT NOT NULL,
    credential_version INTEGER NOT NULL,
    storage_creds_encrypted TEXT NOT NULL,
    storage_creds_dek_wrapped TEXT NOT NULL,
    storage_creds_kek_id TEXT NOT NULL,
    storage_creds_encryption_version INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX job_credentials_under_kek ON job_credentials (storage_creds_kek_id, job_id);
