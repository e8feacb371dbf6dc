"""Both gossips implement `shoal_p2p.gossip.interface`: validators and the watch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from shoal_p2p.gossip.interface import OVERLOAD
from shoal_p2p.gossip.settings import GossipLimits, GossipSettings
from shoal_p2p.net.interface import Host
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Outcome, Reason, Verdict, verdict
from tests.conformance.talkers import Talker, connect, mesh
from tests.conformance.worlds import BEAT_S, QUICK, Saying, World
from tests.support.nodes import fresh_identity, until

TOPIC = "/shoal/test/0"
IMPATIENT = replace(QUICK, validator_deadline_s=0.05)


class Judge:
    """A validator with one verdict the first time, and the same or another afterwards."""

    def __init__(
        self, reason: Reason, *, then: Reason | None = None, is_slow: bool = False
    ) -> None:
        self._is_slow = is_slow
        self._reason = reason
        self._then = then or reason

    async def __call__(self, data: bytes) -> Verdict:
        """Return the verdict, raise, or never return, as the reason requires."""
        reason, self._reason = self._reason, self._then
        await trio.lowlevel.checkpoint()
        if reason is Reason.VALIDATOR_FAULT:
            raise RuntimeError("a validator's fault")
        if self._is_slow:
            await trio.sleep_forever()
        return verdict(reason)


# Forwarding


async def test_what_is_accepted_travels_on(world: World) -> None:
    first, middle, last = await world.chain()
    await mesh(TOPIC, first, middle, last)
    assert await first.say(TOPIC, b"pass it on") == 1
    await until(lambda: last.watch.verdicts)
    (here,), (there,) = middle.deliveries, last.deliveries
    assert (here.author, here.forwarder) == (first.peer_id, first.peer_id)
    assert (there.author, there.forwarder) == (first.peer_id, middle.peer_id)
    assert there.data == b"pass it on"
    assert middle.watch.verdicts == [(first.peer_id, first.peer_id, ACCEPT)]
    assert last.watch.verdicts == [(middle.peer_id, first.peer_id, ACCEPT)]
    assert first.watch.verdicts == []


NOT_ACCEPTED = [
    Reason.BAD_FIELD,
    Reason.TOO_OLD,
    Reason.BUSY,
    Reason.VALIDATOR_FAULT,
]


@pytest.mark.parametrize(
    ("reason", "is_slow"), [*((reason, False) for reason in NOT_ACCEPTED), (Reason.BUSY, True)]
)
async def test_what_is_not_accepted_goes_no_further(
    world: World, reason: Reason, is_slow: bool
) -> None:
    first, middle, last = await world.chain(IMPATIENT)
    await mesh(TOPIC, first, middle, last)
    middle.judge = Judge(reason, is_slow=is_slow)
    await first.say(TOPIC, b"judge me")
    await until(lambda: middle.watch.verdicts)
    await world.rest()
    assert set(middle.watch.verdicts) == {(first.peer_id, first.peer_id, verdict(reason))}
    assert middle.gossip.stats().verdicts == {reason: len(middle.watch.verdicts)}
    assert middle.count("forwarded") == 0
    assert last.received == []
    assert last.count("received") == 0
    expected = Outcome.REJECT if reason is Reason.BAD_FIELD else Outcome.IGNORE
    assert {judged.outcome for _, _, judged in middle.watch.verdicts} == {expected}


async def test_nothing_travels_on_before_its_verdict(world: World) -> None:
    first, middle, last = await world.chain(replace(QUICK, validator_deadline_s=20.0))
    await mesh(TOPIC, first, middle, last)
    release = trio.Event()

    async def slow(_data: bytes) -> Verdict:
        await release.wait()
        return ACCEPT

    middle.judge = slow
    await first.say(TOPIC, b"wait")
    await until(lambda: middle.received)
    await world.rest()
    assert last.received == []
    assert middle.watch.verdicts == []
    release.set()
    await until(lambda: last.received == [b"wait"])
    assert middle.received == [b"wait"], "what is being judged is not judged again"


# Copies


@pytest.mark.parametrize("reason", sorted(OVERLOAD))
async def test_after_our_own_trouble_another_copy_is_judged(world: World, reason: Reason) -> None:
    one, two = await world.talkers(2, IMPATIENT)
    await mesh(TOPIC, one, two)
    two.judge = Judge(reason, then=Reason.VALID)
    await one.say(TOPIC, b"again, please")
    await until(lambda: Reason.VALID in two.reasons)
    await world.rest()
    assert two.reasons == [reason, Reason.VALID]
    assert two.received == [b"again, please"] * 2


async def test_only_so_many_are_judged_at_once(world: World) -> None:
    settings = replace(QUICK, max_validating=1, validator_deadline_s=10.0)
    one, two = await world.talkers(2, settings)
    await mesh(TOPIC, one, two)
    running = peak = 0

    async def count(_data: bytes) -> Verdict:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await trio.sleep(BEAT_S)
        running -= 1
        return ACCEPT

    two.judge = count
    for data in (b"one", b"two", b"three"):
        await one.say(TOPIC, data)
    await until(lambda: two.reasons == [Reason.VALID] * 3)
    assert peak == 1
    assert sorted(two.received) == [b"one", b"three", b"two"]


# Messages that no honest gossip sends


async def stranger_of(world: World, talker: Talker) -> Host:
    """Return a host without gossip, connected to `talker`, that sends arbitrary messages."""
    host = await world.host()
    await connect(host, talker.host)
    return host


async def test_a_forged_message_has_no_author_and_shuts_nothing_out(world: World) -> None:
    one, two = await world.talkers(2)
    await mesh(TOPIC, one, two)
    stranger = await stranger_of(world, one)
    real = Saying(author=fresh_identity(), number=7, topic=TOPIC, data=b"real")
    await world.send(stranger, one.peer_id, replace(real, data=b"forged", forged=True))
    await until(lambda: one.watch.verdicts)
    assert one.watch.verdicts == [(stranger.peer_id, None, verdict(Reason.BAD_SIGNATURE))]
    await world.send(stranger, one.peer_id, real)
    await until(lambda: two.received)
    assert one.received == two.received == [b"real"]
    assert one.deliveries[0].author == real.author.peer_id
    assert one.deliveries[0].forwarder == stranger.peer_id
    assert one.gossip.stats().verdicts == {Reason.BAD_SIGNATURE: 1, Reason.VALID: 1}


async def test_a_message_over_the_receivers_limit_is_rejected(world: World) -> None:
    limits = GossipLimits(max_message_bytes=1000)
    one = await world.talker()
    two = await world.talker(GossipSettings(mesh=QUICK.mesh, limits=limits))
    await one.dial(two)
    await mesh(TOPIC, one, two)
    await one.say(TOPIC, bytes(1001))
    await until(lambda: two.watch.verdicts)
    assert two.watch.verdicts[0] == (one.peer_id, None, verdict(Reason.OVERSIZE_MESSAGE))
    assert two.received == []


# Scores

DISTRUSTED = -20.0
"""Below the gossip threshold."""
GRAYLISTED = -60.0


def think(one: Talker, other: Talker, score: float) -> None:
    one.watch.score_of = lambda peer_id: score if peer_id == other.peer_id else 0.0


async def test_who_is_distrusted_hears_nothing_by_us(world: World) -> None:
    first, middle, bad = await world.chain()
    await mesh(TOPIC, first, middle, bad)
    think(middle, bad, DISTRUSTED)
    assert await first.say(TOPIC, b"secret") == 1
    await until(lambda: middle.received)
    await world.rest()
    assert bad.received == []
    assert bad.count("received") == 0


async def test_who_is_graylisted_is_not_read(world: World) -> None:
    one, bad, good = await world.talkers(3)
    await mesh(TOPIC, one, bad, good)
    think(one, bad, GRAYLISTED)
    good.judge = Judge(Reason.TOO_OLD)  # so that good forwards nothing of bad's
    await bad.say(TOPIC, b"spam")
    await bad.join("/shoal/test/bad")
    await until(lambda: good.watch.verdicts)
    await until(lambda: set(good.gossip.peer_topics(bad.peer_id)) == {TOPIC, "/shoal/test/bad"})
    await good.say(TOPIC, b"message")
    await until(lambda: one.received)
    await world.rest()
    assert one.received == [b"message"]
    assert one.count("received") == 1
    assert one.gossip.peer_topics(bad.peer_id) == (TOPIC,)
    assert [forwarder for forwarder, _, _ in one.watch.verdicts] == [good.peer_id]


async def test_a_score_that_raises_is_neutral(world: World) -> None:
    one, two = await world.talkers(2)

    def broken(peer_id: PeerId) -> float:
        raise RuntimeError(peer_id)

    one.watch.score_of = broken
    await mesh(TOPIC, one, two)
    assert await one.say(TOPIC, b"hello") == 1
    await two.say(TOPIC, b"hello yourself")
    await until(lambda: one.received and two.received)


async def test_a_watch_that_raises_costs_that_message_only(world: World) -> None:
    one, two = await world.talkers(2)
    await mesh(TOPIC, one, two)
    learn = two.watch.on_verdict

    def broken(forwarder: PeerId, author: PeerId | None, judged: Verdict) -> None:
        two.watch.on_verdict = learn  # type: ignore[method-assign]
        raise RuntimeError(forwarder)

    two.watch.on_verdict = broken  # type: ignore[method-assign]
    await one.say(TOPIC, b"first")
    await until(lambda: two.count("fault") == 1)
    await one.say(TOPIC, b"second")
    await until(lambda: b"second" in two.received)
    assert two.host.is_connected(one.peer_id)
