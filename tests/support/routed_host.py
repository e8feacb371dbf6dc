"""A double of a host behind a router: the test defines its observed addresses and its partners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from shoal_p2p.net.announced import AnnouncedAddresses
from shoal_p2p.net.connections import ConnectionInfo, Direction
from shoal_p2p.net.refusals import PunchFailedError
from shoal_p2p.net.streams import Stream
from shoal_wire.types import PeerId
from tests.support.doubles.host import FakeHost
from tests.support.talks import open_talk

Partner = Callable[[Stream], Awaitable[object]]


@dataclass(eq=False, kw_only=True)
class RoutedHost(FakeHost):
    """The parts of `Libp2pHost`, beyond `Host`, for relays, hole punching and port mapping."""

    announced: AnnouncedAddresses = field(default_factory=AnnouncedAddresses)
    local_ports: dict[PeerId, int] = field(default_factory=dict)
    partner: Partner | None = None
    """The peer at the other end of streams that this host opens."""
    opens: Callable[[int, str], bool] = lambda _number, _address: False
    """``opens(number, address)``: whether this punch, counted from 1, succeeds."""
    nursery: trio.Nursery | None = None
    knocks: list[tuple[float, str, bool]] = field(default_factory=list)
    num_talks: int = 0
    num_looks: int = 0

    def connections(self) -> tuple[ConnectionInfo, ...]:
        """Return one connection per peer, each with its remote port."""
        self.num_looks += 1
        return tuple(
            replace(one, local_port=self.local_ports.get(one.peer_id, 0), opened_s=5.0)
            for one in super().connections()
        )

    def serve_streams(self, protocol_id: str, handler: Any) -> None:
        """Do nothing: tests call the handler."""

    async def open_stream(self, peer_id: PeerId, _protocol_id: str) -> Stream:
        """Return a stream to `partner`."""
        self.num_talks += 1
        mine, theirs = open_talk(self.peer_id, peer_id)
        assert self.nursery is not None and self.partner is not None
        self.nursery.start_soon(self.partner, theirs)
        await trio.lowlevel.checkpoint()
        return mine

    async def punch_dial(self, address: str, peer_id: PeerId, *, as_client: bool) -> None:
        """Connect if `opens` allows it. Raises PunchFailedError."""
        self.knocks.append((trio.current_time(), address, as_client))
        if not self.opens(len(self.knocks), address):
            await trio.sleep(0.01)
            raise PunchFailedError("refused")
        self.peers[peer_id].address = address
        self.peers[peer_id].direction = Direction.OUT if as_client else Direction.IN
