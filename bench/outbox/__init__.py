"""Webhook deliveries: the throughput, and how much a slow endpoint with a long backlog delays other endpoints."""
