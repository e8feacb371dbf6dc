"""Requests to an inference server, limited in size, time and number.

A server may be slow, busy, hostile or gone. In any case a call here ends: with its reply, at its
deadline, or when the process must stop. So requests run in an event loop in a separate thread: a
blocking library limits each wait for a byte, but never their sum. No tensors.

    caller's thread ──request──▶ loop: send, read up to a limit, within the deadline
          └─ waits for the outcome or a stop ─▶ cancels, the connection is closed
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.pool import ThreadPool
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import httpx

from shoal_base.waits import MINUTE_S, POLL_S, RETRY_S
from shoal_policy.generation.replies import BadReplyError

T = TypeVar("T")
W = TypeVar("W")

REQUEST_SECONDS = 120.0
"""Deadline of one request, from its first byte to its reply's last: a guess, enough for about a
thousand tokens of a slow server. A request that exceeds it is retried, `ATTEMPTS` in all."""
ATTEMPTS = 4
MAX_REPLY_BYTES = 8 << 20
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class ServerRefusedError(Exception):
    """The server refuses permanently. The text is one line and names the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A server's reply."""

    status: int
    body: bytes
    retry_after: float | None
    """Seconds that the server asks to wait."""

    @property
    def text(self) -> str:
        """Return its text in one short line."""
        return " ".join(self.body[:2000].decode("utf-8", "replace").split())[:200]


class InferenceServer:
    """One server, by its address. Thread-safe."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None,
        request_seconds: float = REQUEST_SECONDS,
        connections: int,
        should_stop: Callable[[], bool],
        first_pause_seconds: float = RETRY_S,
    ) -> None:
        """`connections` is the maximum number of concurrent requests. `first_pause_seconds` is the
        pause before the first retry; it doubles with each further one.

        Raises ServerRefusedError for an address that cannot be used.
        """
        self.base_url, self._seconds = base_address(base_url), request_seconds
        self.should_stop, self._first_pause = should_stop, first_pause_seconds
        self._connections = connections
        self._loop = _loop()
        # No compression: a small reply could expand to a great deal of text.
        headers = {"Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        try:
            self._client = httpx.AsyncClient(
                headers=headers, timeout=None, limits=httpx.Limits(max_connections=connections)
            )
            httpx.URL(base_url)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise ServerRefusedError(f"cannot use {base_url}: {error}") from None

    def post(self, address: str, document: Any, max_bytes: int | None = None) -> Reply:
        """Send one request. Raises BadReplyError or httpx.HTTPError without a reply in time."""
        limit = MAX_REPLY_BYTES if max_bytes is None else max_bytes
        future = asyncio.run_coroutine_threadsafe(self._send(address, document, limit), self._loop)
        while not future.done():
            concurrent.futures.wait([future], timeout=POLL_S)
            if not future.done() and self.should_stop():
                future.cancel()
                raise BadReplyError("stopped")
        return future.result()

    async def _send(self, address: str, document: Any, limit: int) -> Reply:
        body = bytearray()
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._client.stream("POST", address, json=document) as reply,
            ):
                async for part in reply.aiter_raw():
                    body += part
                    if len(body) > limit:
                        raise BadReplyError("reply is too large")
        except TimeoutError:
            raise BadReplyError("reply took too long") from None
        after = _seconds(reply.headers.get("retry-after"))
        return Reply(status=reply.status_code, body=bytes(body), retry_after=after)

    def retry(self, once: Callable[[], T | None]) -> T:
        """Return what `once` returns; retry with back-off on BadReplyError and HTTP errors.

        A result of None retries at once. Raises the last BadReplyError, and what else `once`
        raises.
        """
        pause, fault = (
            self._first_pause,
            BadReplyError("no request format was accepted"),
        )
        for attempt in range(ATTEMPTS):
            retry_after = None
            try:
                found = once()
                if found is not None:
                    return found
                continue
            except httpx.HTTPError as error:
                fault = BadReplyError(describe_error(error))
            except BadReplyError as error:
                fault, retry_after = error, error.retry_after
            if attempt == ATTEMPTS - 1 or self.should_stop():
                break
            self._wait(min(MINUTE_S, retry_after or pause * random.uniform(0.5, 1)))
            pause *= 2
        raise fault

    def start_pool(self, work: Callable[[W], T]) -> WorkerPool[W, T]:
        """Return a pool that runs this work for the server, one thread per connection."""
        return WorkerPool(work, at_once=self._connections, should_stop=self.should_stop)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.should_stop() and (left := until - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process's requests; its thread is a daemon."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="requests", daemon=True).start()
    return loop


class WorkerPool(Generic[W, T]):
    """Runs work in several threads; more may be added while results are read."""

    def __init__(
        self, work: Callable[[W], T], *, at_once: int, should_stop: Callable[[], bool]
    ) -> None:
        """`at_once` is the number of threads."""
        self._work, self._should_stop = work, should_stop
        self._num_open = 0
        self._done: queue.SimpleQueue[tuple[W, Any]] = queue.SimpleQueue()
        # Daemon threads: a hanging request must not delay the end of the program.
        self._pool = ThreadPool(at_once)

    def add(self, item: W) -> None:
        """Submit one item."""
        self._num_open += 1

        def done(outcome: Any) -> None:
            self._done.put((item, outcome))

        self._pool.apply_async(self._work, (item,), callback=done, error_callback=done)

    def as_completed(self) -> Iterator[tuple[W, T | Exception]]:
        """Yield each item with its result or exception as it completes, until none is left.

        Ends early on a stop; work in progress is abandoned.
        """
        try:
            while self._num_open and not self._should_stop():
                try:
                    found = self._done.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                self._num_open -= 1
                yield found
        finally:
            self._pool.terminate()


def base_address(url: str) -> str:
    """Return the base of a server's address, which may name one of its pages."""
    base = url.rstrip("/")
    for page in ("/chat/completions", "/completions", "/models"):
        base = base.removesuffix(page)
    return base


def has_version(base_url: str) -> bool:
    """Return whether a base address has the protocol's version, such as /v1."""
    return re.search(r"/v\d", urlsplit(base_url).path) is not None


_DESCRIPTIONS: Final = {
    "ConnectError": "nothing answers there",
    "ConnectTimeout": "it did not answer in time",
    "ReadTimeout": "it did not answer in time",
    "ReadError": "the connection broke",
    "RemoteProtocolError": "the connection broke",
}
"""The most common httpx errors in words, by class name."""


def describe_error(error: Exception) -> str:
    """Return an error in words, or its class and message, in one line."""
    if (words := _DESCRIPTIONS.get(type(error).__name__)) is not None:
        return words
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_failure(error: Exception) -> str:
    """Return a failure's text, with its class if the error is unexpected."""
    return (
        str(error)
        if isinstance(error, BadReplyError | ServerRefusedError)
        else describe_error(error)
    )


def _seconds(retry_after: str | None) -> float | None:
    try:
        return max(0.0, float(retry_after or ""))
    except ValueError:
        return None
