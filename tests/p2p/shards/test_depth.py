"""A swarm that divides itself: whatever comes and goes, all who listen to a publisher hear it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal_p2p.shards.depth import (
    ShardDepth,
    by_network,
    depth_in,
    leaf,
    with_parents,
)
from shoal_p2p.shards.plan import ShardLimits, ShardPlan
from shoal_wire.shard_tree import MAX_DEPTH, depth_of, first_of, lineage, parent_of, path_to

MANY = 1 << MAX_DEPTH
LIMITS = ShardLimits(rotation_s=200.0)


@given(st.integers(0, MANY - 1), st.integers(0, MAX_DEPTH))
def test_a_path_goes_down_by_halves_and_every_number_has_one_place(bits: int, depth: int) -> None:
    path = path_to(bits)
    assert [depth_of(shard) for shard in path] == list(range(MAX_DEPTH + 1))
    assert [parent_of(shard) for shard in path[1:]] == list(path[:-1])
    assert lineage(path[depth]) == path[depth::-1]
    assert leaf(path[-1], depth) == path[depth] - first_of(depth) == bits >> (MAX_DEPTH - depth)
    assert depth_in(with_parents(path[depth : depth + 1])) == depth


@dataclass(eq=False, repr=False)  # nodes see each other: what failed would be spelt out for minutes
class Node:
    """One member by its rules alone: what it listens to, and where it publishes."""

    bits: int
    rng: random.Random
    every_s: float
    drawn_per_s: float
    sees: list[Node] = field(default_factory=list)
    subscribed: set[int] = field(default_factory=set)
    groups: Counter[int] = field(default_factory=Counter)
    subscribed_at: dict[int, float] = field(default_factory=dict)
    received_at: dict[int, float] = field(default_factory=dict)
    own: int = 0
    since: float = 0.0
    obeys: bool = True
    network: str = ""
    """An attacker's node connects to every node; others have a network of their own."""

    def __post_init__(self) -> None:
        self.division = ShardDepth()
        self.plan = ShardPlan(num_shards=1, rng=self.rng, limits=LIMITS)
        self.path = path_to(self.bits)

    @property
    def shards(self) -> tuple[int, ...]:
        return tuple(first_of(self.division.depth) + one for one in self.plan.shards)

    def listens_to(self, other: Node) -> bool:
        return leaf(other.path[-1], self.division.depth) in self.plan.shards

    def hear(self, other: Node, now: float) -> None:
        self.groups[other.path[-1]] += 1
        self.subscribed_at[other.bits] = now
        if other.own in self.received_at:
            self.received_at[other.own] = now

    def tick(self, now: float) -> None:
        on = {id(peer): peer.subscribed for peer in self.sees if peer.subscribed}
        networks = {id(peer): peer.network or str(id(peer)) for peer in self.sees}
        depths = {key: (networks[key], depth_in(shards)) for key, shards in on.items()}
        before, shards = self.division.depth, self.shards

        def publishers() -> int:
            recent = [bits for bits, at in self.subscribed_at.items() if now - at < 600]
            mine = [bits for bits in recent if not set(shards).isdisjoint(path_to(bits))]
            return len(mine) // max(1, len(shards))

        depth = self.division.tick(
            now,
            load=self.plan.load,
            publishers=publishers,
            others=by_network(depths.values()),
            quiet_s=min((now - self.received_at.get(one, now) for one in shards), default=0.0),
        )
        if depth > before:
            self.plan.divide(depth - before, now)
        elif depth < before:
            self.plan.unite(now)
        found: Counter[int] = Counter()
        for shard, count in self.groups.items():
            found[leaf(shard, depth)] += count
        self.plan.tick(now, wanted_per_s=self.drawn_per_s, received=found)
        wanted = with_parents(self.shards)
        self.received_at = {one: self.received_at.get(one, now) for one in wanted}
        listeners = by_network(
            seen for key, seen in depths.items() if self.path[seen[1]] in on[key]
        )
        self.own = self.path[self.division.publish_at(now, listeners)]
        self.next_subscribed = wanted


class Swarm:
    """Nodes receive the messages of their topics; a subscription takes a second to arrive."""

    def __init__(self, seed: int, count: int, every_s: float, drawn_per_s: float) -> None:
        self.rng = random.Random(seed)
        self.every_s, self.drawn_per_s, self.now = every_s, drawn_per_s, 0.0
        self.nodes: list[Node] = []
        self.missed: Counter[int] = Counter()
        self.due = 0
        self.received_groups = 0
        for _ in range(count):
            self.arrive()

    def arrive(self) -> None:
        bits = self.rng.randrange(MANY)
        node = Node(bits, random.Random(self.rng.random()), self.every_s, self.drawn_per_s)
        node.since = self.now
        self.nodes.append(node)

    def leave(self, count: int) -> None:
        self.rng.shuffle(self.nodes)
        del self.nodes[: max(0, min(count, len(self.nodes) - 4))]

    def meet(self) -> None:
        """Each sees some on its own shards and on that on which it publishes, and a few others."""
        for node in self.nodes:
            wants = {*node.shards, node.own, node.path[node.division.depth]}
            near = [o for o in self.nodes if o is not node and not wants.isdisjoint(o.subscribed)]
            far = [o for o in self.nodes if o is not node]
            node.sees = self.rng.sample(near, min(10, len(near)))
            node.sees += self.rng.sample(far, min(4, len(far)))
            node.sees += [other for other in self.nodes if other.network and other is not node]

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            if int(self.now) % 5 == 0:
                self.meet()
            for node in self.nodes:
                if node.obeys:
                    node.tick(self.now)
            for node in self.nodes:
                if node.obeys:
                    node.subscribed = node.next_subscribed
            for node in self.nodes:
                if self.rng.random() < 1 / node.every_s:
                    self.publish(node)

    def publish(self, node: Node) -> None:
        for other in self.nodes:
            if other is node:
                continue
            is_due = other.listens_to(node)
            if node.own in other.subscribed:
                other.hear(node, self.now)
                self.received_groups += 1
            elif is_due and other.obeys and self.now - other.since > 30:
                self.missed[int(self.now)] += 1
            self.due += is_due

    @property
    def depths(self) -> Counter[int]:
        return Counter(node.division.depth for node in self.nodes if node.obeys)


@pytest.mark.slow
def test_a_swarm_that_grows_divides_itself_and_each_node_hears_a_part() -> None:
    swarm = Swarm(1, 48, every_s=5.0, drawn_per_s=0.2)
    swarm.run(200)
    assert min(swarm.depths) >= 2
    assert max(swarm.depths) - min(swarm.depths) <= 1
    assert sum(swarm.missed.values()) <= 0.001 * swarm.due
    before = swarm.received_groups
    swarm.run(60)
    received_per_s = (swarm.received_groups - before) / 60 / len(swarm.nodes)
    assert received_per_s < 0.6 * 48 / 5


@pytest.mark.slow
def test_one_that_doubles_every_minute_divides_itself_in_time() -> None:
    swarm = Swarm(1, 16, every_s=8.0, drawn_per_s=2 / 60)
    for _ in range(200):
        while len(swarm.nodes) < 16 * 2 ** (swarm.now / 60):
            swarm.arrive()
        swarm.run(1)
    assert sum(swarm.missed.values()) == 0
    before = swarm.received_groups
    swarm.run(10)
    received_per_s = (swarm.received_groups - before) / 10 / len(swarm.nodes)
    assert received_per_s < 0.25 * len(swarm.nodes) / 8


@pytest.mark.slow
def test_one_that_becomes_quiet_is_whole_again() -> None:
    swarm = Swarm(2, 60, every_s=8.0, drawn_per_s=0.2)
    swarm.run(200)
    for node in swarm.nodes:
        node.every_s *= 60
    swarm.run(900)
    assert max(swarm.depths) <= 1


LIVES = st.lists(
    st.tuples(st.sampled_from(["come", "go", "busier", "quieter", "nothing"]), st.integers(1, 30)),
    min_size=2,
    max_size=3,
)


@pytest.mark.parametrize("max_examples", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_whatever_comes_and_goes_few_messages_are_missed_and_none_for_good(
    max_examples: int,
) -> None:
    @given(st.integers(0, 1 << 32), st.integers(20, 50), LIVES)
    @settings(max_examples=max_examples)
    def holds(seed: int, count: int, acts: list[tuple[str, int]]) -> None:
        swarm = Swarm(seed, count, every_s=8.0, drawn_per_s=0.2)
        swarm.run(60)
        for act, number in acts:
            match act:
                case "come":
                    for _ in range(number):
                        swarm.arrive()
                case "go":
                    swarm.leave(number)
                case "busier" | "quieter":
                    change = 0.5 if act == "busier" else 4
                    for node in swarm.nodes:
                        node.every_s = min(200.0, max(2.0, node.every_s * change))
            swarm.run(90)
        swarm.run(150)
        settled = swarm.now - 60
        assert sum(swarm.missed.values()) <= 0.002 * swarm.due
        assert sum(n for at, n in swarm.missed.items() if at > settled) == 0

    holds()


def test_a_few_nodes_at_the_old_depth_hold_no_other_back() -> None:
    swarm = Swarm(3, 60, every_s=6.0, drawn_per_s=0.2)
    swarm.meet()
    for node in swarm.nodes[:3]:
        node.obeys, node.subscribed, node.own = False, {0}, 0
    swarm.run(140)
    members = [node for node in swarm.nodes if node.obeys]
    assert min(swarm.depths) >= 2
    followed = sum(depth_of(node.own) == node.division.depth for node in members)
    assert followed >= 0.8 * len(members)
    assert sum(n for at, n in swarm.missed.items() if at > 60) == 0


@given(st.integers(0, 1 << 32), st.integers(4, 12), st.integers(1, 20), st.integers(6, 7))
@example(55, 4, 3, 6)
@example(43, 4, 4, 6)
@settings(max_examples=12)
def test_no_number_of_names_of_one_network_moves_a_node_to_an_empty_depth(
    seed: int, honest: int, names: int, depth: int
) -> None:
    """The attackers listen to every deep shard, so that they count as listeners of every node.

    A network may lead as far as there is something to hear: a quarter of those in sight is followed
    while a quarter of a group a second comes, which a swarm of twelve has three levels deep.
    """
    swarm = Swarm(seed, honest, every_s=8.0, drawn_per_s=0.2)
    swarm.run(5)
    first = first_of(depth)
    for _ in range(names):
        swarm.arrive()
        stranger = swarm.nodes[-1]
        stranger.obeys, stranger.network, stranger.every_s = False, "one", 1e9
        stranger.subscribed = set(range(first, first + (1 << depth)))
    swarm.run(140)
    members = [node for node in swarm.nodes if node.obeys]
    assert max(swarm.depths) <= 3
    assert max(depth_of(node.own) for node in members) <= 3
    assert sum(n for at, n in swarm.missed.items() if at > swarm.now - 60) == 0
