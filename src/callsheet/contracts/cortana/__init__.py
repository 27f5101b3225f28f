"""cortana-vision: what is on screen in videos, found by its words. Five job types, one catalogue, one bucket."""
