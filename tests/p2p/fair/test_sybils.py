"""However many names one network has, it gets one network's share: of places, turns and rates."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.fair import ShareKey
from shoal_p2p.fair.buckets import HierarchicalBuckets, Rate
from shoal_p2p.fair.queue import FairQueue
from shoal_p2p.fair.quota import HierarchicalQuota, QuotaEntry

sides = st.sampled_from(["signed", "passed on"])
names = st.lists(st.tuples(sides, st.integers(0, 10**6)), min_size=1, max_size=200)
"""What a network with names at will says: on which side, under which name, one after the other."""
honest = st.integers(1, 6)
"""Networks with one name each, which want as much as they can get."""


def attackers(identities: tuple[str, int]) -> ShareKey:
    side, name = identities
    return ("attacker", side, str(name))


def honest_key(number: int) -> ShareKey:
    return (f"honest {number}", "signed", "itself")


@settings(max_examples=40)
@given(
    identities=names,
    num_honest=honest,
    room=st.integers(1, 60),
    margin=st.integers(0, 1),
    rng=st.randoms(),
)
def test_places(
    identities: list[tuple[str, int]], num_honest: int, room: int, margin: int, rng: random.Random
) -> None:
    """In a full room each network that wants more has its share, rounded down; less a margin."""
    tree = HierarchicalQuota[None]()
    comers = [attackers(one) for one in identities] * 3
    comers += [honest_key(n) for n in range(num_honest)] * room
    rng.shuffle(comers)
    for at, share_key in enumerate(comers):
        if len(tree) >= room:
            victim = tree.pick_eviction(share_key, margin=margin)
            if victim is None:
                continue
            tree.remove(victim)
        tree.add(QuotaEntry(share_key, None, since=float(at)))
        assert len(tree) <= room
    share = room // (num_honest + 1) - margin
    assert all(tree.count((f"honest {n}",)) >= share for n in range(num_honest))
    assert tree.count(("attacker",)) <= room - num_honest * share


@settings(max_examples=40)
@given(identities=names, num_honest=honest, seed=st.integers(0, 1 << 16))
def test_draws(identities: list[tuple[str, int]], num_honest: int, seed: int) -> None:
    """A draw comes to the attacker's network as often as to any other."""
    tree, rng = HierarchicalQuota[None](), random.Random(seed)
    for share_key in (*map(attackers, identities), *map(honest_key, range(num_honest))):
        tree.add(QuotaEntry(share_key, None))
    drawn = Counter[str]()
    for _ in range(400):
        place = tree.sample(rng)
        assert place is not None
        drawn[place.share_key[0]] += 1
    # Five standard deviations of 400 draws are at most 50.
    assert abs(drawn["attacker"] - 400 / (num_honest + 1)) <= 50


@settings(max_examples=40)
@given(identities=names, num_honest=honest, turns=st.integers(1, 300))
def test_turns(identities: list[tuple[str, int]], num_honest: int, turns: int) -> None:
    """While all want more, no network has had over one turn more than another."""
    queue, had = FairQueue[int](), Counter[str]()
    waiting = [attackers(one) for one in identities]
    for share_key in (*waiting, *map(honest_key, range(num_honest))):
        queue.add(share_key, 0)
    for _ in range(turns):
        found = queue.pop()
        assert found is not None
        share_key, _ = found
        queue.charge(share_key, 1.0)
        had[share_key[0]] += 1
        queue.add(share_key, 0)
    assert max(had.values()) - min(had[f"honest {n}"] for n in range(num_honest)) <= 1
    assert had["attacker"] <= -(-turns // (num_honest + 1))


@settings(max_examples=40)
@given(identities=names, num_honest=honest, num_slots=st.integers(1, 20), rng=st.randoms())
def test_seats(
    identities: list[tuple[str, int]], num_honest: int, num_slots: int, rng: random.Random
) -> None:
    """Whatever order seats are given back in, a free one goes to a network that holds fewest."""
    queue, held = FairQueue[int](), list[ShareKey]()
    networks = ["attacker", *(honest_key(n)[0] for n in range(num_honest))]
    for share_key in (*map(attackers, identities), *map(honest_key, range(num_honest))):
        for number in range(num_slots):
            queue.add(share_key, number)
    for _ in range(20 * num_slots):
        if len(held) == num_slots:
            share_key = held.pop(rng.randrange(num_slots))
            queue.release(share_key)
            queue.add(share_key, 0)
        found = queue.pop()
        assert found is not None
        of_network = Counter(share_key[0] for share_key in held)
        assert of_network[found[0][0]] == min(of_network[network] for network in networks)
        queue.reserve(found[0])
        held.append(found[0])


@settings(max_examples=40)
@given(
    identities=names, takes=st.lists(st.tuples(st.integers(0, 199), st.floats(0, 5)), max_size=300)
)
def test_rates(identities: list[tuple[str, int]], takes: list[tuple[int, float]]) -> None:
    """A network's names together take no more than its burst and what has flowed in since."""
    of_network, of_name = Rate(burst=20, per_second=2), Rate(burst=10, per_second=1)
    buckets = HierarchicalBuckets(of_network, of_name, max_keys=4)
    now = taken = 0.0
    for which, elapsed in takes:
        now += elapsed
        bucket = buckets.get(("attacker", f"{identities[which % len(identities)]}"), now)
        if bucket.wait_s(1.0, now) == 0.0:
            bucket.debit(1.0, now)
            taken += 1.0
    assert taken <= of_network.burst + of_network.per_second * now
