"""Requests over the simulated network: one protocol of one host, and the calls it answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from shoal_p2p.net.request import RequestFailure, RequestHandler, RequestLimits
from shoal_p2p.net.request_slots import RequestSlots
from shoal_wire.types import PeerId

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class PendingRequest:
    """One request, from its arrival until its caller no longer waits."""

    asker: PeerId
    request: bytes
    ended: trio.Event = field(default_factory=trio.Event)
    """The caller has its result."""
    answer: bytes | None = None
    """The answer once served; None if the stream was reset."""
    failure: RequestFailure = RequestFailure.RESET
    """Why there is no answer."""
    is_awaited: bool = True


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedServer:
    """Serves one protocol as `shoal_p2p.net.request.RequestServer` does."""

    handler: RequestHandler
    max_request_bytes: int
    limits: RequestLimits
    bring: Callable[[PendingRequest], None]
    """Returns a call's result to its caller."""
    on_sent: Callable[[PeerId, bytes], None]
    _seats: RequestSlots = field(init=False)

    def __post_init__(self) -> None:
        limits = self.limits
        self._seats = RequestSlots(
            max_slots=limits.max_concurrent, max_per_peer=limits.max_concurrent_per_peer
        )

    async def serve(self, call: PendingRequest) -> None:
        """Answer `call`, in a task of the receiving host."""
        call.answer = await self._answer(call.asker, call.request)
        self.bring(call)
        if call.answer is None or not call.is_awaited:
            return
        try:
            self.on_sent(call.asker, call.request)
        except Exception:  # the answer is sent; a listener's error must not end the host
            logger.exception("on_sent failed")

    async def _answer(self, asker: PeerId, request: bytes) -> bytes | None:
        if len(request) > self.max_request_bytes:
            return None
        seat = self._seats.acquire(asker, asker)
        if seat is None:
            return None
        self._seats.set_busy(seat, is_busy=True)  # no peer is slow to send or read here
        try:
            with trio.move_on_after(self.limits.handle_deadline_s):
                return await self.handler(asker, request)
        except Exception:
            logger.debug("a handler failed", exc_info=True)
        finally:
            self._seats.release(seat)
        return None
