"""Search over the text of videos: the same answers on SQLite and PostgreSQL, typing and reading errors forgiven."""
