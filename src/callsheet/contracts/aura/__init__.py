"""Contract 004, live jobs: progress that never lies, cancellation that cleans up, streams that resume."""
