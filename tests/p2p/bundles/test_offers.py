"""Offers of tasks between nodes: exchanged, bounded, fair, and hostile ones refused."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import trio

from shoal_p2p.bundles.offer_book import MAX_HELD, MAX_PER_SIGNER, OfferBook, check_offer
from shoal_p2p.net.request import RequestHandler
from shoal_wire.errors import LocalError, RemoteError
from shoal_wire.limits import MAX_OFFERS, TASKS_PROTOCOL
from shoal_wire.offers import OFFER_LIFE_MS, open_offer
from shoal_wire.task_codec import encode_task_answer
from shoal_wire.task_messages import Offers, OffersQuery, Training
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason
from tests.p2p.bundles.offer_cases import (
    NOW_MS,
    SWARM,
    UNUSABLE,
    Trader,
    checked,
    damaged,
    sealed,
    signer,
    spec_of_rows,
)

pytestmark = pytest.mark.virtual_time


def traders(count: int, networks: int = 1) -> list[Trader]:
    """Return nodes that are all connected."""
    found = [Trader(number) for number in range(1, count + 1)]
    for index, one in enumerate(found):
        for other in found[:index]:
            one.meet(other)
    for one in found:
        for index, other in enumerate(found):
            if other is not one:
                one.host.peers[other.peer_id].source = f"network {index % networks}"
    return found


async def test_an_offer_comes_to_a_node_that_never_met_its_author() -> None:
    author, friend, far = (Trader(number) for number in (1, 2, 3))
    author.meet(friend)
    friend.meet(far)
    author.exchange.offer([spec_of_rows(title="Small sums")])
    await friend.ask(author)
    await far.ask(friend)
    (family,) = far.book.families()
    assert (family.spec, family.signers) == (spec_of_rows(title="Small sums"), (author.peer_id,))
    assert [one.spec.name for one in far.offered] == ["sums"]
    assert not author.names() and not far.verdicts
    await far.ask(friend)
    assert len(far.offered) == 1, "what is known is not sent again"
    query = OffersQuery(swarm_digest=SWARM.digest, known=far.book.ids)
    assert friend.exchange.answer(query) == Offers()


async def test_a_task_that_is_not_shared_is_not_offered() -> None:
    author, friend = traders(2)
    author.exchange.offer([replace(spec_of_rows(), share=False)])
    await friend.ask(author)
    assert not friend.names()
    author.exchange.offer([spec_of_rows()])
    await friend.ask(author)
    assert friend.names() == ["sums"]
    author.exchange.offer([])
    assert not author.exchange.answer(OffersQuery(swarm_digest=SWARM.digest)).envelopes


async def test_an_offer_ends_an_hour_after_its_signer_is_gone(nursery: trio.Nursery) -> None:
    author, friend = traders(2)
    author.exchange.offer([spec_of_rows()])
    await friend.ask(author)
    first = friend.book.ids
    await nursery.start(author.exchange.run)
    await nursery.start(friend.exchange.run)
    for one in (author, friend):
        one.now_ms += OFFER_LIFE_MS // 2
    await trio.sleep(60.0)
    assert friend.names() == ["sums"] and friend.book.ids != first, "its signer has renewed it"
    friend.host.lose(author.peer_id)
    friend.now_ms += OFFER_LIFE_MS + 1
    await trio.sleep(60.0)
    assert not friend.names()


@pytest.mark.parametrize("name", UNUSABLE)
async def test_what_this_swarm_cannot_use_is_held_by_none_and_no_offence(name: str) -> None:
    hostile, friend = traders(2)
    envelope = UNUSABLE[name](signer(9))
    hostile.host.handlers[TASKS_PROTOCOL] = _answering(Offers(envelopes=(envelope,)))
    await friend.ask(hostile)
    assert not friend.names() and not friend.verdicts
    assert check_offer(open_offer(envelope), SWARM, NOW_MS) is None


def _answering(answer: Offers) -> RequestHandler:
    async def handle(_peer_id: PeerId, _request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return encode_task_answer(answer)

    return handle


async def test_a_damaged_offer_is_the_fault_of_the_peer_that_sends_it() -> None:
    rng = random.Random(7)
    good = sealed(spec_of_rows(), signer(9))
    for raw, _ in zip(damaged(good, rng), range(300), strict=False):
        with pytest.raises(RemoteError):
            open_offer(raw)
    hostile, friend = traders(2)
    bad = next(damaged(good, rng))
    hostile.host.handlers[TASKS_PROTOCOL] = _answering(Offers(envelopes=(bad, good)))
    await friend.ask(hostile)
    assert [(peer, found.reason) for peer, found in friend.verdicts] == [
        (hostile.peer_id, Reason.MALFORMED_ANSWER)
    ]
    await friend.ask(hostile)
    assert len(friend.verdicts) == 1 and not friend.names(), "it is asked no more"


def test_an_offer_that_is_too_long_is_not_sealed() -> None:
    with pytest.raises(LocalError, match="at most 8,192"):
        sealed(spec_of_rows(), signer(1), change=lambda f: replace(f, config_json='"' + 9000 * "x"))


def test_ten_thousand_offers_of_one_network_leave_room_for_the_others() -> None:
    book, rng = OfferBook(), random.Random(3)
    for number in range(4):
        one = checked(sealed(spec_of_rows(f"friend {number}", number + 1), signer(number + 1)))
        assert book.add(one, network=f"friend {number}")
    flood = [
        checked(sealed(spec_of_rows(f"flood {n}", n + 99), signer(n + 99))) for n in range(600)
    ]
    for round_ in range(17):
        for one in flood:
            offer = replace(one.offer, created_ms=NOW_MS + round_)
            book.add(replace(one, offer=offer), network="flood")
    assert len(book) == MAX_HELD
    names = {one.spec.name for one in book.families()}
    assert {f"friend {number}" for number in range(4)} <= names
    found = [book.sample((), rng, 8) for _ in range(200)]
    friends = sum(one.family.name.startswith("friend") for some in found for one in some)
    assert friends > 0.4 * sum(map(len, found)), "four networks of five fill most of an answer"


def test_a_signer_has_a_few_offers_and_a_newcomer_evicts_the_largest_network() -> None:
    book = OfferBook()
    for number in range(MAX_PER_SIGNER + 5):
        book.add(checked(sealed(spec_of_rows(f"{number}", number), signer(1))), network="a")
    assert len(book) == MAX_PER_SIGNER
    for number in range(MAX_HELD):
        book.add(
            checked(sealed(spec_of_rows(f"b{number}", number), signer(number + 2))), network="a"
        )
    assert len(book) == MAX_HELD
    late = checked(sealed(spec_of_rows("late", 7), signer(7000)))
    assert book.add(late, network="b")
    assert "late" in {one.spec.name for one in book.families()} and len(book) == MAX_HELD


def test_the_newest_offer_of_a_signer_counts() -> None:
    book = OfferBook()
    old, new = (checked(sealed(spec_of_rows(), signer(1), created_ms=NOW_MS + at)) for at in (0, 5))
    assert book.add(old, network="a")
    assert book.add(new, network="b")
    assert not book.add(old, network="a") and not book.add(new, network="a")
    assert book.ids == (new.offer.offer_id,)
    assert len(list(book.families())) == 1


async def test_an_answer_has_a_bound_and_the_own_offers_first() -> None:
    author, friend = traders(2)
    for number in range(MAX_HELD):
        one = checked(sealed(spec_of_rows(f"{number}", number), signer(number + 9)))
        author.book.add(one, network=f"{number}")
    author.exchange.offer([spec_of_rows("own", 5000)])
    answer = author.exchange.answer(OffersQuery(swarm_digest=SWARM.digest))
    assert len(answer.envelopes) == MAX_OFFERS
    assert open_offer(answer.envelopes[0]).family.name == "own"
    for _ in range(40):
        await friend.ask(author)
    assert "own" in friend.names() and len(friend.book) <= MAX_HELD


async def test_what_peers_earn_is_a_mean_over_networks() -> None:
    spec = spec_of_rows()
    me, *others = traders(6, networks=2)
    for index, one in enumerate(others):
        reward = 1.0 if index % 2 == 0 else 0.25
        one.training = (Training(family=spec.digest, reward=reward, groups=3),)
        await me.ask(one)
    found = me.exchange.earnings(spec.digest)
    by_network: dict[str, list[float]] = {}
    for one in others:
        network = me.host.source_of(one.peer_id)
        by_network.setdefault(network, []).append(one.training[0].reward)
    means = [sum(some) / len(some) for some in by_network.values()]
    assert found.num_nodes == 5
    assert found.reward == pytest.approx(sum(means) / len(means))
    me.host.lose(others[0].peer_id)
    assert me.exchange.earnings(spec.digest).num_nodes == 4
    await trio.sleep(700.0)
    assert me.exchange.earnings(spec.digest).num_nodes == 0


async def test_a_bootstrap_that_serves_no_tasks_is_no_fault(nursery: trio.Nursery) -> None:
    me, other = traders(2)
    other.host.handlers.clear()
    await nursery.start(me.exchange.run)
    await trio.sleep(120.0)
    assert not me.verdicts
