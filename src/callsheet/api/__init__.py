"""The HTTP API that belongs to no contract: one file per `/v1` resource, and `/objects`.

`/v1/jobs` itself (create, list, read, cancel, follow events) is contract 001: `contracts/redis_gateway/routes.py` and
`streams.py`. Artifacts and logs of a job come from `contracts/control_plane/files.py`, with the other worker routes.
"""
