"""Whoever has shown that it has a message is sent no copy of it."""

from __future__ import annotations

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


def test_who_brings_a_copy_while_it_is_judged_gets_none() -> None:
    bench = meshed(A, B, C)
    event = brought(bench)
    bench.say(B, messages=[event.message])
    assert judge(bench, event) == [C]


def test_judging_may_take_longer_than_a_heartbeat() -> None:
    bench = meshed(A, B, C)
    event = brought(bench)
    bench.say(B, messages=[event.message])
    bench.beat(2)
    assert judge(bench, event) == [C]


def test_who_offers_it_while_it_is_judged_gets_none() -> None:
    bench = meshed(A, B, C)
    event = brought(bench)
    bench.say(C, ihave=[(event.message.topics[0], [event.message.id])])
    assert judge(bench, event) == [B]


def test_a_copy_of_one_message_says_nothing_of_another() -> None:
    bench = meshed(A, B, C)
    event = brought(bench)
    bench.say(B, messages=[said(2, author=ELSEWHERE)])
    assert sorted(judge(bench, event)) == [B, C]
