"""Other job queues beside Callsheet: the same scenarios, with one virtual environment per peer."""
