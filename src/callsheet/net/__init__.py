"""What every part that speaks HTTP shares: backoff, Retry-After, driver errors, the SSRF guard, SSE, AWS signatures.

Import each module by its own name: the package itself loads nothing.
"""
