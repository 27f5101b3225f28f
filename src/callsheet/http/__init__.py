"""The HTTP server that all contracts and `api/` share: keys, sessions, limits, errors, idempotency and event streams.

`server.py` composes the app, `state.py` holds what its requests share, `middleware.py` is what each request passes.
"""
