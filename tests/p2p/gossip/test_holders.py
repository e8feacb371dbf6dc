"""A peer that is known to have a message is sent no copy of it."""

from __future__ import annotations

import pytest

from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT
from tests.p2p.gossip.mesh_fixture import TOPIC, A, B, C, a_message, forwarded
from tests.p2p.gossip.test_mesh import mesh_with

ELSEWHERE = PeerId("elsewhere")


@pytest.mark.parametrize(
    ("who", "says", "beats", "goes_to"),
    [
        (B, "a copy", 0, [C]),
        (B, "a copy", 2, [C]),  # validation may take longer than a heartbeat
        (C, "an offer", 0, [B]),
        (B, "another message", 0, [B, C]),
    ],
)
def test_a_peer_known_to_have_a_message_gets_no_copy(
    who: PeerId, says: str, beats: int, goes_to: list[PeerId]
) -> None:
    node = mesh_with(A, B, C)
    brought = a_message(author=ELSEWHERE)
    node.receive(A, messages=[brought])
    if says == "an offer":
        node.receive(who, ihave=[(TOPIC, [brought.id])])
    else:
        copy = brought if says == "a copy" else a_message(2, author=ELSEWHERE)
        node.receive(who, messages=[copy])
    node.heartbeat(beats)
    judged = node.mesh.on_verdict(A, brought, ACCEPT, node.now)
    assert sorted(peer for peer, _ in forwarded(judged)) == goes_to
