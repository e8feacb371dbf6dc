"""Whoever has shown that it has a message is sent no copy of it."""

from __future__ import annotations

import pytest

from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT
from tests.p2p.gossip.bench import TOPIC, A, B, C, forwarded, said
from tests.p2p.gossip.test_mesh import meshed

ELSEWHERE = PeerId("elsewhere")


@pytest.mark.parametrize(
    ("who", "says", "beats", "goes_to"),
    [
        (B, "a copy", 0, [C]),
        (B, "a copy", 2, [C]),  # judging may take longer than a heartbeat
        (C, "an offer", 0, [B]),
        (B, "another message", 0, [B, C]),
    ],
)
def test_who_has_shown_that_it_has_what_is_judged_gets_none(
    who: PeerId, says: str, beats: int, goes_to: list[PeerId]
) -> None:
    bench = meshed(A, B, C)
    brought = said(author=ELSEWHERE)
    bench.say(A, messages=[brought])
    if says == "an offer":
        bench.say(who, ihave=[(TOPIC, [brought.id])])
    else:
        copy = brought if says == "a copy" else said(2, author=ELSEWHERE)
        bench.say(who, messages=[copy])
    bench.beat(beats)
    judged = bench.mesh.judged(A, brought, ACCEPT, bench.now)
    assert sorted(peer for peer, _ in forwarded(judged)) == goes_to
