"""The built-in tasks, to declare on your own app. `callsheet worker` without an app has all of them."""

from callsheet.contracts.redis_gateway.tasks import add_tasks as add_language_models

from .app.builtin import add_builtin
from .app.transcoding import add_transcoding

__all__ = ["add_builtin", "add_language_models", "add_transcoding"]
