"""Contract 003, the worker control plane: workers anywhere pull jobs over plain HTTP."""
