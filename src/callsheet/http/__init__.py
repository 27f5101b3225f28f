"""The HTTP layer that all contracts share: server, API keys, limits, error responses, idempotency and event streams."""
