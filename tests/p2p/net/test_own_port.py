"""From which port one dials: behind a router, to the world outside, from the one listened on."""

from __future__ import annotations

import pytest
import trio

from shoal_p2p.net import own_port
from shoal_p2p.net.own_port import is_seen_through_a_router, open_from, source_for

ANY, LAN, LOOP = "/ip4/0.0.0.0/tcp/4001", "/ip4/192.168.1.2/tcp/4002", "/ip4/127.0.0.1/tcp/4003"
SIX = "/ip6/::/tcp/4006"


@pytest.mark.parametrize(
    ("host", "listening", "source"),
    [
        ("198.51.100.1", [LOOP, LAN], ("192.168.1.2", 4002)),
        ("198.51.100.1", [SIX, ANY], ("0.0.0.0", 4001)),
        ("198.51.100.1", [LOOP, SIX], None),
        ("127.0.0.1", [LAN, LOOP], ("127.0.0.1", 4003)),
        ("2001:db8::1", [ANY, SIX], ("::", 4006)),
        ("host.example", [ANY], None),
    ],
)
def test_where_a_host_is_dialled_from(
    host: str, listening: list[str], source: tuple[str, int] | None
) -> None:
    assert source_for(host, listening) == source


@pytest.mark.parametrize(
    ("host", "own", "expected"),
    [
        ("198.51.100.1", ["/ip4/192.168.1.2/tcp/1", "/ip4/127.0.0.1/tcp/1"], True),
        ("198.51.100.1", ["/ip4/192.168.1.2/tcp/1", "/ip4/203.0.113.7/tcp/1"], False),
        ("192.168.1.3", ["/ip4/192.168.1.2/tcp/1"], False),
        ("127.0.0.1", ["/ip4/192.168.1.2/tcp/1"], False),
        ("host.example", ["/ip4/192.168.1.2/tcp/1"], False),
    ],
)
def test_only_a_machine_of_private_addresses_is_seen_through_a_router(
    host: str, own: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_port, "expand_unspecified", lambda _address: own)
    assert is_seen_through_a_router(host, [ANY]) is expected


async def test_a_dial_comes_from_the_port_that_is_listened_on_and_leaves_none_open() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_STREAM) as own:
        for option in (trio.socket.SO_REUSEADDR, trio.socket.SO_REUSEPORT):
            own.setsockopt(trio.socket.SOL_SOCKET, option, 1)
        await own.bind(("127.0.0.1", 0))
        own.listen()
        source = own.getsockname()
        port = listeners[0].socket.getsockname()[1]
        async with await open_from("127.0.0.1", port, source) as stream:
            async with await listeners[0].accept() as taken:
                assert taken.socket.getpeername() == source
            with pytest.raises(OSError) as caught:
                await open_from("127.0.0.1", port, source)
            assert caught.value.errno in own_port.TAKEN
            assert stream.socket.getsockname() == source
    await listeners[0].aclose()
