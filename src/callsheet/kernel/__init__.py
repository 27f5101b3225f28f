"""The rules of a job, pure: no input or output, no clock, no randomness, standard library only."""
