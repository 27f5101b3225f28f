"""The published contracts: each is a thin router over the engine, with its own vocabulary."""
