"""Child processes: `command` and `sandbox_launcher` lock a program in, `processes` runs it and ends it.

`system_calls` lists what a program in the sandbox may ask of the kernel. This package knows nothing of media or models.
"""
