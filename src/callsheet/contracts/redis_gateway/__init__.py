"""Contract 001, the Redis Streams gateway: terminal → HTTP → store → worker → events."""
