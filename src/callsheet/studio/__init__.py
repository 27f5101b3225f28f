"""The studio: pages for people, served as static files that call the public HTTP API like any other client."""
