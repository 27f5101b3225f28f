"""The catalogue in a SQLite file, normally that of the jobs. `keeping` works without the extra `media`."""
