"""Contract 004, live jobs: truthful progress, cancellation with cleanup, and event streams that clients can resume."""
