"""The pages for people: static files that are clients of the HTTP API like any other."""
