"""Sampling: reduce a video to the few frames that show something new. Callers need only `sample.sample`.

A sandboxed child (`child`, `decode`) decodes the video once, shrinks the frames for comparison
(`frame_filter`) and writes only the selected ones (`picture`). This file imports nothing: the child has its own package
path.
"""
