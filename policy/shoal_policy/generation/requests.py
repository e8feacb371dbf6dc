"""Requests to a server that answers for this node: bounded in size, time and number at once.

A server may be slow, busy, hostile or gone. Whatever it does, a call here ends: by its reply, by
its deadline, or when this process is told to stop. For that requests run in an event loop, in a
thread of its own: a library that blocks bounds each wait for a byte, and never their sum.
No tensors.

    caller's thread ──request──▶ loop: send, read up to a bound, within the deadline
          └─ waits for the outcome, or to be told to stop ─▶ cancels, the connection is closed
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.pool import ThreadPool
from typing import Any, Final, Generic, TypeVar

import httpx

from shoal_base.waits import MINUTE_S, POLL_S, RETRY_S
from shoal_policy.generation.replies import BadReplyError

T = TypeVar("T")
W = TypeVar("W")

REQUEST_SECONDS = 120.0
"""Deadline of one request, from its first byte to its reply's last: a guess, long enough for some
thousand tokens of a slow server. A request that ends by it is tried again, `ATTEMPTS` in all."""
ATTEMPTS = 4
MAX_REPLY_BYTES = 8 << 20
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class ServerRefusedError(Exception):
    """The server refuses for good. The text is one line and names the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A server's reply."""

    status: int
    body: bytes
    retry_after: float | None
    """Seconds that the server asks to wait."""

    @property
    def said(self) -> str:
        """Its text in one short line."""
        return " ".join(self.body[:2000].decode("utf-8", "replace").split())[:200]


class InferenceServer:
    """One server, by its address; threads may share it."""

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
        """`connections` is how many requests are under way at once, at most.
        `first_pause_seconds` are waited before the second try; they double from there on.

        Raises RemoteError for an address that cannot be used.
        """
        self.base_url, self._seconds = base_url.rstrip("/"), request_seconds
        self.should_stop, self._first_pause = should_stop, first_pause_seconds
        self._connections = connections
        self._loop = _loop()
        # What is packed is not unpacked: a small reply may be a great deal of text.
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
        """Send one request. Raises Fault or httpx.HTTPError without a whole reply in time."""
        limit = MAX_REPLY_BYTES if max_bytes is None else max_bytes
        asked = asyncio.run_coroutine_threadsafe(self._posted(address, document, limit), self._loop)
        while not asked.done():
            concurrent.futures.wait([asked], timeout=POLL_S)
            if not asked.done() and self.should_stop():
                asked.cancel()
                raise BadReplyError("told to stop")
        return asked.result()

    async def _posted(self, address: str, document: Any, limit: int) -> Reply:
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

    def persist(self, once: Callable[[], T | None]) -> T:
        """Return what `once` does, tried again with growing pauses while it meets a Fault.

        None asks for another try at once. Raises the last Fault, and what else `once` raises.
        """
        pause, fault = self._first_pause, BadReplyError("no way of asking was understood")
        for attempt in range(ATTEMPTS):
            retry_after = None
            try:
                found = once()
                if found is not None:
                    return found
                continue
            except httpx.HTTPError as error:
                fault = BadReplyError(named(error))
            except BadReplyError as error:
                fault, retry_after = error, error.retry_after
            if attempt == ATTEMPTS - 1 or self.should_stop():
                break
            self._wait(min(MINUTE_S, retry_after or pause * random.uniform(0.5, 1)))
            pause *= 2
        raise fault

    def parallel(self, work: Callable[[W], T]) -> Parallel[W, T]:
        """Return what does such work for this server, as many at once as it has connections."""
        return Parallel(work, at_once=self._connections, should_stop=self.should_stop)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.should_stop() and (left := until - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The loop that this process sends its requests in, and its thread; both end with it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="requests", daemon=True).start()
    return loop


class Parallel(Generic[W, T]):
    """Work done in several threads, to which more may be added while its outcomes are read."""

    def __init__(
        self, work: Callable[[W], T], *, at_once: int, should_stop: Callable[[], bool]
    ) -> None:
        """`at_once` is how many threads there are."""
        self._work, self._should_stop = work, should_stop
        self._num_open = 0
        self._done: queue.SimpleQueue[tuple[W, Any]] = queue.SimpleQueue()
        # Of daemons: a request that hangs must not hold up the end of the program.
        self._pool = ThreadPool(at_once)

    def add(self, item: W) -> None:
        """Have one more done."""
        self._num_open += 1

        def done(outcome: Any) -> None:
            self._done.put((item, outcome))

        self._pool.apply_async(self._work, (item,), callback=done, error_callback=done)

    def outcomes(self) -> Iterator[tuple[W, T | Exception]]:
        """Yield each item with its outcome, as it is there, until nothing is left to do.

        Ends early when told to stop; what is under way then is left to itself.
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


_IN_WORDS: Final = {
    "ConnectError": "nothing answers there",
    "ConnectTimeout": "it did not answer in time",
    "ReadTimeout": "it did not answer in time",
    "ReadError": "the connection broke",
    "RemoteProtocolError": "the connection broke",
}
"""The commonest errors of httpx in words, by their kind."""


def named(error: Exception) -> str:
    """An error in words, or else its kind and what it says, in one line."""
    if (words := _IN_WORDS.get(type(error).__name__)) is not None:
        return words
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def said(error: Exception) -> str:
    """Return a fault's text; the kind too of an error that nobody foresaw."""
    return str(error) if isinstance(error, BadReplyError | ServerRefusedError) else named(error)


def _seconds(retry_after: str | None) -> float | None:
    try:
        return max(0.0, float(retry_after or ""))
    except ValueError:
        return None
