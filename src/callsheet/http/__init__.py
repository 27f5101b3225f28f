"""The HTTP side that all surfaces share: the server, keys, limits, problems, idempotency and event streams."""
