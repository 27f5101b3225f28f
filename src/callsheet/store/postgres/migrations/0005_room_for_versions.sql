-- A job's row has three versions in its life, each with an entry in this index: room for two, the first can go when the
-- third comes. Full pages were searched for what could go, and split: a tenth of the server's work for a claim.
ALTER INDEX inbox_jobs_pkey SET (fillfactor = 50);
