"""Whoever has shown that it has a message is sent no copy of it."""

from __future__ import annotations

import pytest

from shoal_p2p.gossip.rpc import Validate
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT
from tests.p2p.gossip.bench import A, B, Bench, C, forwarded, of, said
from tests.p2p.gossip.test_mesh import meshed

ELSEWHERE = PeerId("elsewhere")


def judge(bench: Bench, event: Validate) -> list[str]:
    """Accept a message that is being judged; return who it goes to."""
    events = bench.mesh.judged(event.peer, event.message, ACCEPT, bench.now)
    return [peer for peer, _ in forwarded(events)]


def brought(bench: Bench) -> Validate:
    """Let A bring a message of somebody who is not here."""
    (event,) = of(Validate, bench.say(A, messages=[said(author=ELSEWHERE)]))
    return event


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
    event = brought(bench)
    if says == "an offer":
        bench.say(who, ihave=[(event.message.topics[0], [event.message.id])])
    else:
        copy = event.message if says == "a copy" else said(2, author=ELSEWHERE)
        bench.say(who, messages=[copy])
    bench.beat(beats)
    assert sorted(judge(bench, event)) == goes_to
