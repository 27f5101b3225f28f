"""The rules of a job as pure code: no input or output, no clock, no randomness, standard library only."""
