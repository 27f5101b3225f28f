"""Contract 003, the worker control plane: workers anywhere claim jobs over plain HTTP."""
