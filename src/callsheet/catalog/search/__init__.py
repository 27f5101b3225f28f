"""Search over the text of videos: the same answers on SQLite and PostgreSQL, typing and reading errors forgiven.

The index is two plain tables that both databases have alike (0002_search.sql), and one program over them: `find` asks
for rows as a generator, `sqlite` and `postgres` answer. FTS5 and tsvector were left aside: they split text differently,
neither gives a ranked page of a frequent word without reading all of it, and misread words need our own list anyway.
"""

from .terms import Terms

__all__ = ["Terms"]
