"""The catalogue in a PostgreSQL database, normally that of the jobs. `schema` works without the extra `media`."""
