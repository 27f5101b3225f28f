"""Everything that proves Callsheet, and the real servers it is proved on."""
