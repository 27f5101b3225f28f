"""What every part that speaks HTTP shares: backoff, Retry-After, driver errors, the SSRF guard, SSE, AWS signatures.

Modules are imported one by one, so that nobody loads more than is needed.
"""
