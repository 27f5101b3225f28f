"""Search over the text of videos, with the same results on SQLite and PostgreSQL; it forgives typing and OCR errors.

The index is plain tables, the same on both databases (0002_search.sql), read by one program: the generator `find`
yields named queries, and `sqlite` or `postgres` sends their rows back. FTS5 and tsvector are not used: they tokenise
differently, rank a frequent word only after reading all of its rows, and misread words need our own word list anyway.
"""

from .terms import Terms

__all__ = ["Terms"]
