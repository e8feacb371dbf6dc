"""What an RPC may hold."""

from __future__ import annotations

import pytest
from libp2p.pubsub.pb import rpc_pb2

from p2p.gossip.messages import refuse_hollow
from p2p.net.streams import MalformedFrameError

MOST = 16_384
PARTS = {"publish": b"\x12\x00", "subscriptions": b"\x0a\x00"}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_the_smallest_rpc_of_too_many_parts_is_refused(part: bytes) -> None:
    """Each part takes the least that it can: who looks at the length first lets none through."""
    for count, refused in ((MOST, False), (MOST + 1, True)):
        raw = part * count
        rpc = rpc_pb2.RPC.FromString(raw)
        if refused:
            with pytest.raises(MalformedFrameError, match="16384 parts"):
                refuse_hollow(rpc, len(raw))
        else:
            refuse_hollow(rpc, len(raw))


@pytest.mark.parametrize("field", ["ihave", "iwant", "graft", "prune", "idontwant"])
def test_so_is_one_whose_control_message_comes_in_pieces(field: str) -> None:
    number = rpc_pb2.ControlMessage.DESCRIPTOR.fields_by_name[field].number
    part = bytes([number << 3 | 2, 0])
    pieces = [part * (MOST // 2), part * (MOST // 2 + 1)]
    raw = b"".join(
        rpc_pb2.RPC(control=rpc_pb2.ControlMessage.FromString(p)).SerializeToString()
        for p in pieces
    )
    with pytest.raises(MalformedFrameError):
        refuse_hollow(rpc_pb2.RPC.FromString(raw), len(raw))
