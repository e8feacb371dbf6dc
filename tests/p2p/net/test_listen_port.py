"""The source port of dials: behind NAT, to public addresses, it is the listen port."""

from __future__ import annotations

import pytest
import trio

from shoal_p2p.net import listen_port
from shoal_p2p.net.listen_port import bind_address_for, connect_from, is_behind_nat

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
def test_the_bind_address_for_a_dial(
    host: str, listening: list[str], source: tuple[str, int] | None
) -> None:
    assert bind_address_for(host, listening) == source


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
def test_only_a_machine_with_private_addresses_is_behind_nat(
    host: str, own: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen_port, "expand_unspecified", lambda _address: own)
    assert is_behind_nat(host, [ANY]) is expected


async def test_a_dial_uses_the_listen_port_and_leaves_no_socket_open() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_STREAM) as own:
        for option in (trio.socket.SO_REUSEADDR, trio.socket.SO_REUSEPORT):
            own.setsockopt(trio.socket.SOL_SOCKET, option, 1)
        await own.bind(("127.0.0.1", 0))
        own.listen()
        source = own.getsockname()
        port = listeners[0].socket.getsockname()[1]
        async with await connect_from("127.0.0.1", port, source) as stream:
            async with await listeners[0].accept() as taken:
                assert taken.socket.getpeername() == source
            with pytest.raises(OSError) as caught:
                await connect_from("127.0.0.1", port, source)
            assert caught.value.errno in listen_port.ADDRESS_IN_USE
            assert stream.socket.getsockname() == source
    await listeners[0].aclose()
