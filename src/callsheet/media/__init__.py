"""Media: what a file is, what is in it, and ffmpeg in a box. Used by tasks; knows nothing of jobs."""
