"""Programs for those who work on Callsheet itself."""
