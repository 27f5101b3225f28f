"""Other people's job queues beside Callsheet: the same scenarios, each peer in its own environment."""
