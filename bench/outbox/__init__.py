"""Deliveries: how many in a second, and what a slow endpoint with a long backlog costs the others."""
