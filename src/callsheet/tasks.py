"""The built-in tasks, for use in your own app. `callsheet worker` without an app declares all built-in tasks."""

from callsheet.contracts.redis_gateway.tasks import add_tasks as add_language_models

from .app.builtin import add_builtin
from .app.transcoding import add_transcoding

__all__ = ["add_builtin", "add_language_models", "add_transcoding"]
