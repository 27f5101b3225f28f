"""Language models: chat, plans, code, embeddings, answers from documents, and tools in child processes.

Nothing here knows of jobs; `callsheet.contracts.redis_gateway.tasks` makes tasks of it. Nothing is imported here
either, so that a tool's child process starts fast.
"""
