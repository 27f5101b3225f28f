"""Media files: detection, inspection, and ffmpeg in a sandbox. Tasks use this package; it knows nothing of jobs.

`sniff` and `probe` inspect a file; `ffmpeg.Ffmpeg` runs the program; `transcode`, `hls` and `poster` produce outputs
and return only complete ones. All errors are in `errors`. This file imports nothing, so that the optional packages
load only where they are used.
"""
