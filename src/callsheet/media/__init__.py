"""Media: what a file is, what is in it, and ffmpeg in a box. Used by tasks; knows nothing of jobs.

`sniff` and `probe` look at a file; `ffmpeg.Ffmpeg` runs the program; `transcode`, `hls` and `poster` make outputs and
answer only when those are whole. All errors are in `errors`. Nothing is imported here: the extra packages are needed
only where they are used.
"""
