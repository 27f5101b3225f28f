-- The contract's index on (status, job_type, created_at), for those who poll the view `jobs` themselves. Callsheet's own
-- workers do not: they claim by `inbox_jobs_claimable`, and one active job for a video and type is what
-- `inbox_jobs_active_unique_key` holds. It is not made by `callsheet migrate`, because every job of every contract pays for
-- it: about 4 % of the server's time for an enqueue, a claim and an end.
--   psql -v ON_ERROR_STOP=1 -f index_jobs.sql "$CALLSHEET_DATABASE_URL"
CREATE INDEX IF NOT EXISTS idx_jobs_status_type_created ON inbox_jobs (
    (CASE status WHEN 'queued' THEN 'queued'::job_status WHEN 'running' THEN 'processing'::job_status
          WHEN 'succeeded' THEN 'done'::job_status ELSE 'failed'::job_status END),
    (CASE kind WHEN 'video.transcode' THEN 'transcode'::job_type WHEN 'video.sample' THEN 'sample'::job_type
          WHEN 'video.ocr' THEN 'ocr'::job_type WHEN 'video.segment_index' THEN 'segment_index'::job_type
          WHEN 'video.clip_generate' THEN 'clip_generate'::job_type END),
    (to_timestamp(created_at / 1000.0))
) WHERE contract = 'cortana';
