"""Sampling: a video becomes the few frames that show something new. `sample.sample` is all that callers need.

The video is decoded once, by a child in the box (`child`, `decode`), which shrinks what it looks at (`sieve`, `phash`)
and writes only what it keeps (`picture`). Nothing is imported here: the child has its own way to its packages.
"""
