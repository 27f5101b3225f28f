"""The published contracts: each a thin router over the engine, in its own words."""
