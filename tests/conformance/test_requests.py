"""The real and the simulated host implement `net.interface.Host`: requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from shoal_p2p.net.interface import Host
from shoal_p2p.net.request import RequestError, RequestFailure, RequestLimits
from shoal_wire.types import PeerId
from tests.conformance.talkers import connect
from tests.conformance.worlds import World
from tests.support.nodes import echo, until

ASK = "/test/ask/1"


def serve(host: Host, handler: Callable[[PeerId, bytes], Awaitable[bytes]] = echo) -> None:
    host.set_request_handler(ASK, handler, max_request_bytes=10)


async def ask(one: Host, other: Host, request: bytes = b"?") -> bytes:
    return await one.request(other.peer_id, ASK, request, max_response_bytes=100)


async def failing(
    one: Host, peer_id: PeerId, request: bytes = b"?", *, cap: int = 100, within_s: float = 10.0
) -> RequestFailure:
    with pytest.raises(RequestError) as caught:
        await one.request(peer_id, ASK, request, max_response_bytes=cap, timeout=within_s)
    return caught.value.failure


async def failing_ping(one: Host, peer_id: PeerId) -> RequestFailure:
    with pytest.raises(RequestError) as caught:
        await one.ping(peer_id, timeout=0.2)
    return caught.value.failure


class Holding:
    """A handler that answers when it is released."""

    def __init__(self) -> None:
        self.release = trio.Event()
        self.callers: list[PeerId] = []
        self.answered: list[PeerId] = []

    async def __call__(self, asker: PeerId, request: bytes) -> bytes:
        """Return the request, once released."""
        self.callers.append(asker)
        await self.release.wait()
        self.answered.append(asker)
        return request


async def test_the_handler_learns_who_asks_and_its_answer_comes_back(world: World) -> None:
    one, two = await world.pair()
    log: list[tuple[PeerId, bytes]] = []

    async def handler(asker: PeerId, request: bytes) -> bytes:
        log.append((asker, request))
        await trio.lowlevel.checkpoint()
        return request * 2

    for host in (one, two):
        serve(host, handler)
    assert await ask(one, two, b"ab") == b"abab"
    assert await ask(two, one, b"") == b""
    assert log == [(one.peer_id, b"ab"), (two.peer_id, b"")]
    serve(two)
    assert await ask(one, two, b"ab") == b"ab", "a later handler takes the place of the first"


async def test_requests_go_only_to_connected_peers(world: World) -> None:
    one, two = await world.hosts(2)
    serve(two)
    for peer_id in (one.peer_id, two.peer_id):
        assert await failing(one, peer_id) is RequestFailure.NOT_CONNECTED
    await connect(one, two)
    assert await ask(one, two) == b"?"
    await one.disconnect(two.peer_id)
    assert await failing(one, two.peer_id) is RequestFailure.NOT_CONNECTED
    assert await failing_ping(one, two.peer_id) is RequestFailure.NOT_CONNECTED


async def test_a_protocol_that_no_peer_serves_is_unsupported(world: World) -> None:
    one, two = await world.pair()
    assert await failing(one, two.peer_id) is RequestFailure.UNSUPPORTED
    serve(one)
    assert await failing(one, two.peer_id) is RequestFailure.UNSUPPORTED


async def test_neither_request_nor_answer_may_be_too_long(world: World) -> None:
    one, two = await world.pair()
    received: list[bytes] = []

    async def handler(_asker: PeerId, request: bytes) -> bytes:
        received.append(request)
        await trio.lowlevel.checkpoint()
        return bytes(100)

    serve(two, handler)
    assert await ask(one, two, bytes(10)) == bytes(100)
    assert await failing(one, two.peer_id, bytes(11)) is RequestFailure.RESET
    assert received == [bytes(10)]
    assert await failing(one, two.peer_id, cap=99) is RequestFailure.OVERSIZE
    assert await ask(one, two) == bytes(100)


async def test_a_handler_that_raises_or_takes_too_long_resets(world: World) -> None:
    one, two = await world.pair()

    async def handler(_asker: PeerId, request: bytes) -> bytes:
        if request == b"raise":
            raise RuntimeError("a handler's fault")
        if request == b"sleep":
            await trio.sleep_forever()
        return request

    two.set_request_handler(
        ASK, handler, max_request_bytes=10, limits=RequestLimits(handle_deadline_s=0.2)
    )
    assert await failing(one, two.peer_id, b"raise") is RequestFailure.RESET
    assert await failing(one, two.peer_id, b"sleep") is RequestFailure.RESET
    assert await ask(one, two, b"fine") == b"fine"


async def test_an_asker_waits_no_longer_than_it_says(world: World) -> None:
    one, two = await world.pair()
    handler = Holding()
    serve(two, handler)
    began = trio.current_time()
    assert await failing(one, two.peer_id, within_s=0.3) is RequestFailure.TIMEOUT
    assert 0.29 < trio.current_time() - began < 5.0
    assert handler.callers == [one.peer_id]
    handler.release.set()
    await until(lambda: handler.answered)
    assert await ask(one, two) == b"?"


async def test_the_silent_time_out(world: World) -> None:
    one, two = await world.hosts(2)
    serve(two)
    cable = await world.cable(two)
    await one.dial(cable.address)
    await until(lambda: two.is_connected(one.peer_id))
    assert await ask(one, two) == b"?"
    cable.pull()
    assert await failing(one, two.peer_id, within_s=0.2) is RequestFailure.TIMEOUT
    assert await failing_ping(one, two.peer_id) is RequestFailure.TIMEOUT


@pytest.mark.parametrize("how", ["asker aborts", "asked aborts", "asked closes"])
async def test_a_closed_connection_resets_its_requests(world: World, how: str) -> None:
    one, two = await world.pair()
    handler = Holding()
    serve(two, handler)
    failures: list[RequestFailure] = []

    async def wait() -> None:
        failures.append(await failing(one, two.peer_id, within_s=60.0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await until(lambda: handler.callers)
        if how == "asker aborts":
            one.abort(two.peer_id)
        elif how == "asked aborts":
            two.abort(one.peer_id)
        else:
            await two.close()
        with trio.fail_after(10):
            await until(lambda: failures)
    assert failures == [RequestFailure.RESET]


async def test_a_sent_answer_is_reported_after_it_was_sent(world: World) -> None:
    one, two = await world.pair()
    events: list[object] = []

    async def handler(_asker: PeerId, request: bytes) -> bytes:
        events.append("asked")
        await trio.lowlevel.checkpoint()
        if request == b"raise":
            raise RuntimeError("a handler's fault")
        events.append("answered")
        return request

    def sent(asker: PeerId, request: bytes) -> None:
        events.append((asker, request))

    two.set_request_handler(ASK, handler, max_request_bytes=10, on_sent=sent)
    await failing(one, two.peer_id, b"raise")
    await failing(one, two.peer_id, bytes(11))
    assert events == ["asked"]
    assert await ask(one, two) == b"?"
    await until(lambda: len(events) == 4)
    assert events[1:] == ["asked", "answered", (one.peer_id, b"?")]


async def test_nothing_was_sent_to_who_has_gone(world: World) -> None:
    one, two = await world.pair()
    handler, sent = Holding(), list[bytes]()
    two.set_request_handler(
        ASK, handler, max_request_bytes=10, on_sent=lambda _asker, request: sent.append(request)
    )
    assert await failing(one, two.peer_id, b"late", within_s=0.2) is RequestFailure.TIMEOUT
    handler.release.set()
    await until(lambda: handler.answered)
    assert await ask(one, two, b"soon") == b"soon"
    await until(lambda: sent == [b"soon"])


@pytest.mark.parametrize(
    ("limits", "served"),
    [
        (RequestLimits(max_concurrent_per_peer=2), {"one": 2, "other": 2}),
        (RequestLimits(max_concurrent=3, max_concurrent_per_peer=2), {"one": 2, "other": 1}),
    ],
)
async def test_who_asks_too_much_at_once_is_reset(
    world: World, limits: RequestLimits, served: dict[str, int]
) -> None:
    one, other, server = await world.hosts(3)
    await connect(one, server)
    await connect(other, server)
    handler = Holding()
    server.set_request_handler(ASK, handler, max_request_bytes=10, limits=limits)
    answers: dict[str, list[object]] = {"one": [], "other": []}

    async def try_to_ask(name: str, host: Host) -> None:
        try:
            answers[name].append(await ask(host, server))
        except RequestError as error:
            answers[name].append(error.failure)

    async with trio.open_nursery() as nursery:
        for name, host in (("one", one), ("other", other)):
            for _ in range(4):
                nursery.start_soon(try_to_ask, name, host)
            refused = [RequestFailure.RESET] * (4 - served[name])
            await until(lambda n=name, r=refused: answers[n] == r)
        await until(lambda: len(handler.callers) == sum(served.values()))
        handler.release.set()
    for name, count in served.items():
        assert answers[name].count(b"?") == count
    assert await ask(one, server) == b"?", "there is room again"
