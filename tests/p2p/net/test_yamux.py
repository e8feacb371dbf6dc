"""A frame that was begun is written: who runs out of time while it writes harms nobody else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import trio

from shoal_p2p.net.host import Libp2pHost, RequestError, RequestFailure
from shoal_wire.types import PeerId
from tests.support.nodes import echo, open_test_host

if TYPE_CHECKING:
    pass

ECHO = "/shoal/test/echo/1"


async def asked(host: Libp2pHost, peer_id: PeerId, word: bytes, seconds: float) -> bytes | None:
    """Return the answer, or None if there was none in time, or too many were asked for at once."""
    try:
        return await host.request(peer_id, ECHO, word, max_response_bytes=64, timeout=seconds)
    except RequestError as error:
        assert error.failure in (RequestFailure.TIMEOUT, RequestFailure.RESET)
        return None


async def test_no_deadline_of_a_request_costs_the_connection() -> None:
    """Deadlines that end anywhere in a request: 150, drawn by chance."""
    rng = random.Random(5)
    async with open_test_host() as asker, open_test_host() as answerer:
        answerer.set_request_handler(ECHO, echo, max_request_bytes=64)
        lost: list[PeerId] = []
        asker.add_peer_callbacks(disconnected=lost.append)
        await asker.dial(answerer.listen_addrs()[0])
        for _ in range(15):
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(
                        asked, asker, answerer.peer_id, b"x", rng.uniform(0.0005, 0.01)
                    )
        assert await asked(asker, answerer.peer_id, b"last", 5.0) == b"last"
        assert not lost
