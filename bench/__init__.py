"""What the stores do on this machine, beside hand-written loops: `python -m bench`, results in RESULTS.md."""
