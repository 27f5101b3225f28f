"""A stand-in for a language model: it speaks the OpenAI protocol with canned answers, for experiments.

python examples/llm_stand_in.py 8080
CALLSHEET_LLM_URL=http://127.0.0.1:8080/v1 callsheet worker studio:app
"""
# ruff: noqa: INP001, T201 - a script that prints

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "stand-in"
DIMENSIONS = 256


def reply(messages: list[dict[str, Any]]) -> str:
    """Return a plan, code or a quotation when the prompt asks for one, else an echo."""
    system = next((m["content"] for m in messages if m["role"] == "system"), "")
    prompt = messages[-1]["content"]
    if '"steps"' in system:
        parts = [part.strip() for part in re.split(r",| and ", prompt)]
        return json.dumps({"steps": [{"title": part, "detail": f"Do it: {part}."} for part in parts if part]})
    if "fenced block" in system:
        return f"This prints the request.\n\n```python\nprint({prompt!r})\n```"
    if quotation := re.search(r"\[1\] (?:\(.*\)\n)?(.+)", prompt):
        return f"{quotation[1]} [1]"
    return f"You said: {prompt}"


def vector_of(text: str) -> list[float]:
    """Texts that share words have vectors that are alike."""
    vector = [0.001] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) % DIMENSIONS] += 1.0
    return vector


class Handler(BaseHTTPRequestHandler):
    """Handles the two resources of an OpenAI server: chat completions and embeddings."""

    def do_POST(self) -> None:
        """Answer a chat or an embedding."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/embeddings"):
            texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
            data = [{"index": n, "embedding": vector_of(text)} for n, text in enumerate(texts)]
            self._send("application/json", json.dumps({"model": MODEL, "data": data}).encode())
        else:
            self._send("text/event-stream", b"".join(_events(reply(request["messages"]))))

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log line."""


def _events(text: str) -> list[bytes]:
    words = re.findall(r"\s*\S+", text)
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {"content": word}} for word in words]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    usage = {"completion_tokens": len(words)}
    chunks = [{"model": MODEL, "choices": [choice]} for choice in choices]
    lines = [*map(json.dumps, chunks), json.dumps({"model": MODEL, "choices": [], "usage": usage}), "[DONE]"]
    return [f"data: {line}\n\n".encode() for line in lines]


def serve(port: int = 0) -> str:
    """Serve in the background; the base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/v1"


if __name__ == "__main__":
    print(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 8080))
    threading.Event().wait()
