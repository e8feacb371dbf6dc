"""A small real server of OpenAI's protocol: a tiny model behind http.server, and its bad days."""

from __future__ import annotations

import json
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import encode_text
from shoal_policy.rollouts import Answer
from tests.policy import tiny_models

Fate = Callable[["Handler", dict[str, Any]], bool]
"""Does something else with a request; returns whether it was dealt with."""


def replies(status: int, body: Any, *, only: str = "", **headers: str) -> Fate:
    """This to every request, or to those to one path."""

    def fate(handler: Handler, _request: dict[str, Any]) -> bool:
        if only and handler.path != only:
            return False
        handler.reply(status, body, **headers)
        return True

    return fate


def drawn(
    policy: Policy, ids: Sequence[int], request: dict[str, Any], *, num: int, seed: int
) -> list[Answer]:
    """Return answers to a prompt, sampled as the request asks."""
    params = tiny_models.sampling(
        request.get("max_tokens") or request["max_completion_tokens"],
        temperature=request["temperature"],
        top_p=request["top_p"],
        top_k=request.get("top_k", 0),
    )
    return tiny_models.draw(policy, [ids], num=num, params=params, seed=seed)[0]


class ModelServer(ThreadingHTTPServer):
    """Answers with what a random model generates, unless `fate` decides otherwise."""

    daemon_threads = True

    def __init__(self, fate: Fate = lambda _handler, _request: False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fate = fate
        self.policy = tiny_models.policy("qwen2", positions=1024)
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.lock = threading.Lock()
        self.now = self.most = 0
        self._model = threading.Lock()
        self._requested: Counter[str] = Counter()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, _t: type[BaseException] | None, _e: BaseException | None, _b: TracebackType | None
    ) -> None:
        self.shutdown()
        self.server_close()

    def complete(self, request: dict[str, Any], prompt: str) -> Any:
        """Generate one completion as the request asks."""
        with self._model:
            # Its n-th request of these words, whatever came between: the order is chance.
            requested = json.dumps(request, sort_keys=True)
            self._requested[requested] += 1
            seed = zlib.crc32(f"{self._requested[requested]} {requested}".encode())
            ids = encode_text(self.policy, prompt.lower() or " ")  # a template is never empty
            return drawn(self.policy, ids, request, num=1, seed=seed)[0]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ModelServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.requests.append(request)
            self.server.paths.append(self.path)
            self.server.keys.append(self.headers.get("authorization"))
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        self.busy = True
        try:
            if not self.server.fate(self, request):
                self.answer(request)
        finally:
            self.done()

    def done(self) -> None:
        """No longer at work, at the latest when the client can know: it may ask again at once."""
        with self.server.lock:
            self.server.now -= self.busy
            self.busy = False

    def answer(self, request: dict[str, Any]) -> None:
        """The honest answer."""
        chat = self.path.endswith("/chat/completions")
        prompt = request["messages"][-1]["content"] if chat else request["prompt"]
        made = self.server.complete(request, prompt)
        choice: dict[str, Any] = {"index": 0, "finish_reason": made.finish_reason.value}
        if chat:
            choice["message"] = {"role": "assistant", "content": made.text}
        else:
            choice["text"] = made.text
        if request.get("logprobs"):
            choice["logprobs"] = (
                {"content": [{"token": "?", "logprob": value} for value in made.logprobs]}
                if chat
                else {"token_logprobs": made.logprobs}
            )
        self.reply(200, {"choices": [choice], "usage": {"completion_tokens": len(made.ids)}})

    def reply(self, status: int, body: Any, **headers: str) -> None:
        """Send a JSON object, or bytes as they are."""
        self.done()
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_args: Any) -> None:
        """Not into the tests' output."""
