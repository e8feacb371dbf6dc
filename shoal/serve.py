"""`shoal serve`: a policy behind OpenAI's HTTP API, for evaluation tools and chat programs.

    client ─▶ its own thread ─▶ one batch at a time (the model) ─▶ reply, or chunks of it

It listens on loopback only and refuses websites: a browser's request has an Origin, or a host name.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from shoal.policy_flags import chosen_policy, policy_flags
from shoal_base.bounded import FEW
from shoal_base.lines import guard_process, say, say_json
from shoal_base.waits import MINUTE_S
from shoal_settings.exits import EXIT_OK, fail
from shoal_settings.parser import Parser, whole

if TYPE_CHECKING:
    from shoal_policy.serving.batcher import Batcher
    from shoal_policy.serving.replies import ServedRequest
    from shoal_policy.serving.requests import Kind

DESCRIPTION = """\
Serve a policy to other programs through OpenAI's API (/v1/chat/completions,
/v1/completions, /v1/models), on this machine alone. It uses a node's newest checkpoint (chosen
once, at start) or any model. Nothing is trained or shared.

  shoal serve                   the policy of the node whose folder is here
  shoal serve --checkpoint .shoal/node/checkpoints/round-000100
  shoal serve --model smollm2   a model as it comes, or an exported folder

Exit codes: 0 ok, 1 failed, 2 usage."""

PORT: Final = 8000
"""Also the port of vLLM's server, so that recipes for it work."""
MAX_BODY_BYTES: Final = 4 * 1024 * 1024  # a guess: a prompt of about a million tokens
_MODELS: Final = "/v1/models"
_KINDS: Final[Mapping[str, Kind]] = {"/v1/chat/completions": "chat", "/v1/completions": "text"}
_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run `shoal serve` until it is interrupted; return the exit code."""
    arguments = _parser().parse_args(argv)
    guard_process()
    try:
        server = _bound(arguments.port)
        with server:
            policy = chosen_policy("serve", arguments)
            from shoal_policy.serving.batcher import Batcher

            server.batcher = Batcher(policy)
            signal.signal(signal.SIGTERM, _interrupt)
            _announce(server, policy.name, as_json=arguments.json)
            server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        return EXIT_OK
    return EXIT_OK


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _bound(port: int) -> Server:
    try:
        return Server(port)
    except OSError as error:
        why = f"cannot listen at 127.0.0.1:{port} ({error.strerror}); give another --port"
        raise fail("serve", why) from None


def _announce(server: Server, model: str, *, as_json: bool) -> None:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    if as_json:
        say_json({"event": "ready", "schema_version": 1, "url": url, "model": model})
    else:
        say(f"serving {model} at {url}")


class Server(ThreadingHTTPServer):
    """HTTP server on loopback: a thread per connection, one batch at a time."""

    daemon_threads = True
    batcher: Batcher

    def __init__(self, port: int) -> None:
        """Listen; port 0 takes a free one. Raises OSError."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.places = threading.BoundedSemaphore(FEW)
        """Limit of requests in progress or waiting; the next one gets status 503."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "shoal", ""
    timeout = MINUTE_S  # a silent client is disconnected after this time

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)

    def _serve(self) -> None:
        if not self.server.places.acquire(blocking=False):
            self._refuse(503, "too many requests; retry later")
            return
        try:
            self._answer()
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            self.server.places.release()

    def _answer(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")
        if (host[0] or host[2]).lower() not in _HOSTS or self.headers.get("Origin"):
            self._refuse(403, "websites may not ask: call 127.0.0.1 by that name")
            return
        path = self.path.partition("?")[0]
        if self.command == "GET" and (path == _MODELS or path.startswith(f"{_MODELS}/")):
            self._answer_models(unquote(path[len(_MODELS) + 1 :]))
        elif self.command == "POST" and path in _KINDS:
            if (body := self._body()) is not None:
                self._complete(_KINDS[path], body)
        else:
            paths = [_MODELS, f"{_MODELS}/ID"] if self.command == "GET" else [*_KINDS]
            self._refuse(404, f"there is {', '.join(paths)}")

    def _answer_models(self, name: str) -> None:
        from shoal_policy.serving.replies import model_reply, models_reply

        policy = self.server.batcher.policy
        if not name:
            self._send(200, models_reply(policy))
        elif name == policy.name:
            self._send(200, model_reply(policy))
        else:
            self._refuse(404, f"there is no model {name!r}: this server has {policy.name!r}")

    def _complete(self, kind: Kind, body: Mapping[str, Any]) -> None:
        from shoal_policy.serving.replies import ServedRequest
        from shoal_policy.serving.requests import BadRequestError

        self._is_streaming = False
        try:
            request = ServedRequest(kind, self.server.batcher, body)
            if request.options.stream:
                self._stream(request)
            else:
                self._send(200, request.reply())
        except BadRequestError as error:
            self._refuse(error.status, str(error), param=error.param)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            log.warning("a request failed", exc_info=True)
            why = f"{type(error).__name__}: {str(error)[:200]}"
            if self._is_streaming:
                self._send_event(_error(500, why))
                self.close_connection = True
            else:
                self._refuse(500, why)

    def _stream(self, request: ServedRequest) -> None:
        """Send a reply as server-sent events."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self._is_streaming = True
        request.stream(self._send_event)
        self._send_chunk(b"data: [DONE]\n\n")
        self._send_chunk(b"")

    def _send_event(self, event: Mapping[str, Any]) -> None:
        self._send_chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _body(self) -> dict[str, Any] | None:
        """Return the request as an object; None if it was refused."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            self._refuse(413, f"a body needs its Content-Length, at most {MAX_BODY_BYTES} bytes")
            return None
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            self._refuse(400, "the body must be a JSON object")
            return None
        return body

    def _refuse(self, status: int, why: str, *, param: str | None = None) -> None:
        self.close_connection = True  # a body may be unread
        self._send(status, _error(status, why, param=param))

    def _send(self, status: int, reply: Mapping[str, Any]) -> None:
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)


def _error(status: int, why: str, *, param: str | None = None) -> dict[str, Any]:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    code = "model_not_found" if status == 404 and param == "model" else None
    return {"error": {"message": why, "type": kind, "param": param, "code": code}}


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal serve", description=DESCRIPTION)
    policy_flags(parser)
    parser.add_argument(
        "--port",
        type=whole(0, 65535),
        default=PORT,
        help="where to listen on 127.0.0.1; 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object when it is ready"
    )
    return parser
