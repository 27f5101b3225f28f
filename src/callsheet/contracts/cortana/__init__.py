"""Contract 002, cortana-vision: searches the on-screen text of videos. Five job types, one catalogue, one bucket."""
