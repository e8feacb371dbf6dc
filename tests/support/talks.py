"""In-memory streams of one protocol, as a host's handlers use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import trio
import trio.testing
from libp2p.abc import INetStream
from libp2p.peer.id import ID

from shoal_p2p.net.address import to_libp2p_id
from shoal_wire.types import PeerId


@dataclass
class _Connection:
    peer_id: ID


@dataclass
class TalkStream:
    """One end."""

    pipe: trio.StapledStream
    muxed_conn: _Connection
    was_reset: bool = False
    sent: list[bytes] = field(default_factory=list)

    async def read(self, n: int | None = None) -> bytes:
        return bytes(await self.pipe.receive_some(n))

    async def write(self, data: bytes) -> None:
        self.sent.append(data)
        await self.pipe.send_all(data)

    async def close(self) -> None:
        await self.pipe.send_eof()

    async def reset(self) -> None:
        self.was_reset = True
        await self.pipe.aclose()


def open_talk(own: PeerId, other: PeerId) -> tuple[INetStream, INetStream]:
    """Return the ends of `own` and of `other`."""
    one, two = trio.testing.memory_stream_pair()
    held = TalkStream(one, _Connection(to_libp2p_id(other)))
    theirs = TalkStream(two, _Connection(to_libp2p_id(own)))
    return cast("INetStream", held), cast("INetStream", theirs)
