"""Programs for developers of Callsheet."""
