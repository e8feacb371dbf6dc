"""The number of shards follows demand, never flaps, and in time every shard is heard."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.shards.plan import DemandMeter, ShardLimits, ShardPlan, demand_of


class ShardModel:
    """Shards with a rate each, a plan over them, and seconds that pass."""

    def __init__(
        self, rates: list[float], *, fixed: int | None = None, seed: int = 1, **limits: Any
    ) -> None:
        self.rates = rates
        self.plan = ShardPlan(
            num_shards=len(rates),
            rng=random.Random(seed),
            fixed=fixed,
            limits=ShardLimits(**limits),
        )
        self.num_received: Counter[int] = Counter()
        self.exact = [0.0] * len(rates)
        self.now = 100.0
        self.joins: list[tuple[float, int]] = []
        self.leaves: list[tuple[float, int]] = []

    def run(self, seconds: int, *, wanted: float = 0.0) -> tuple[int, ...]:
        for _ in range(seconds):
            before = set(self.plan.shards)
            self.plan.tick(self.now, wanted_per_s=wanted, received=self.num_received)
            after = set(self.plan.shards)
            self.joins += [(self.now, shard) for shard in sorted(after - before)]
            self.leaves += [(self.now, shard) for shard in sorted(before - after)]
            for shard in self.plan.shards:
                self.exact[shard] += self.rates[shard]
                self.num_received[shard] = int(self.exact[shard])
            self.now += 1.0
        return self.plan.shards

    def supply(self) -> float:
        return sum(self.rates[shard] for shard in self.plan.shards)


NO_ROTATION: Any = {"rotation_s": 1e7}


def test_one_shard_is_joined_at_once_and_kept_for_ever() -> None:
    model = ShardModel([8.0])
    assert model.run(1) == (0,)
    assert model.run(5000, wanted=1e6) == (0,)
    assert len(model.joins) == 1
    assert model.leaves == []


@pytest.mark.parametrize(
    ("num_shards", "wanted", "expected"),
    [
        *((32, 0.0, 1), (32, 3.9, 1), (32, 4.1, 2), (32, 16.0, 4), (32, 40.0, 10)),
        # The same demand, shards as busy, ever more of them: no more traffic.
        *((4, 10.0, 3), (64, 10.0, 3), (4096, 10.0, 3)),
    ],
)
def test_as_many_shards_as_give_twice_what_is_wanted(
    num_shards: int, wanted: float, expected: int
) -> None:
    model = ShardModel([8.0] * num_shards, **NO_ROTATION)
    assert len(model.run(600, wanted=wanted)) == expected
    assert model.supply() >= 2 * wanted


def test_a_swarm_that_grows_within_its_shards_lets_a_node_leave_some() -> None:
    model = ShardModel([2.0] * 8, **NO_ROTATION)
    assert len(model.run(300, wanted=7.9)) == 8
    model.rates = [16.0] * 8
    # 16 aimed at; one shard gives just that, two leave the slack that keeps it from flapping.
    assert len(model.run(1200, wanted=7.9)) == 2


def test_no_more_than_the_most_however_hungry() -> None:
    assert len(ShardModel([0.0] * 100, max_shards=16, **NO_ROTATION).run(600, wanted=1e9)) == 16


def test_rates_at_the_edge_do_not_make_it_flap() -> None:
    model = ShardModel([8.0] * 16, **NO_ROTATION)
    model.run(300, wanted=8.0)
    before = len(model.joins)
    rng = random.Random(3)
    for _ in range(100):
        model.run(30, wanted=8.0 * rng.uniform(0.8, 1.2))
    assert len(model.joins) - before <= 1
    assert model.leaves == []


def test_every_shard_is_received_in_time_and_joined_before_another_is_left() -> None:
    model = ShardModel([8.0] * 12)
    model.run(12 * 400)
    assert sorted(shard for _, shard in model.joins[:12]) == list(range(12)), "none twice before"
    for at, _ in model.leaves:
        (joined_at,) = [j for j, _ in model.joins if at - 16 <= j <= at - 14]
        assert joined_at < at
    assert len(model.leaves) >= 6


def test_nodes_do_not_move_in_step() -> None:
    moves = set()
    for seed in range(20):
        model = ShardModel([8.0] * 12, seed=seed)
        model.run(600)
        moves.add(model.joins[1][0])
    assert len(moves) > 10
    assert len({ShardModel([8.0] * 12, seed=seed).run(1) for seed in range(40)}) > 6


@pytest.mark.parametrize(("wanted", "expected"), [(0.0, 1), (0.5, 1), (1.0, 2), (4.0, 4)])
def test_a_divided_shard_leaves_as_many_parts_as_the_demand_needs(
    wanted: float, expected: int
) -> None:
    plan = ShardPlan(num_shards=1, rng=random.Random(1))
    for now in range(100):
        plan.tick(float(now), wanted_per_s=wanted, received={0: 8 * now})
    plan.divide(2, 100.0)
    assert len(plan.shards) == expected
    assert plan.load == pytest.approx(2.0)


def test_a_silent_swarm_is_covered_by_one_shard() -> None:
    model = ShardModel([0.0, 0.0], **NO_ROTATION)
    assert len(model.run(100, wanted=1.0)) == 2
    assert len(model.run(200, wanted=0.0)) == 1


@given(st.integers(0, 20), st.lists(st.booleans(), max_size=8))
def test_a_fixed_number_is_kept_however_shards_divide_and_unite(
    fixed: int, deeper: list[bool]
) -> None:
    plan = ShardPlan(num_shards=1, rng=random.Random(1), fixed=fixed)
    number = 1
    for now, is_deeper in enumerate([True, *deeper]):
        plan.tick(100.0 + now, wanted_per_s=0.0, received={})
        assert len(plan.shards) == min(fixed, number)
        if is_deeper:
            plan.divide(1, 100.5 + now)
            number *= 2
            assert len(plan.shards) == min(fixed, number) or fixed > number // 2
        elif number > 1:
            plan.unite(100.5 + now)
            number //= 2


@pytest.mark.parametrize(("fixed", "expected"), [(0, 0), (1, 1), (3, 3), (64, 5)])
def test_a_fixed_number_is_kept_whatever_the_demand(fixed: int, expected: int) -> None:
    model = ShardModel([8.0] * 5, fixed=fixed, **NO_ROTATION)
    for wanted in (0.0, 1e6, 0.0):
        assert len(model.run(200, wanted=wanted)) == expected


@settings(max_examples=60)
@given(
    st.lists(st.floats(0, 50), min_size=1, max_size=24),
    st.lists(st.tuples(st.integers(1, 90), st.floats(0, 200)), min_size=1, max_size=12),
    st.integers(0, 1000),
)
def test_whatever_happens_it_listens_to_something_within_its_bounds(
    rates: list[float], phases: list[tuple[int, float]], seed: int
) -> None:
    model = ShardModel(rates, seed=seed, rotation_s=40.0, max_shards=6)
    subscribed: set[int] = set()
    for seconds, wanted in phases:
        for _ in range(seconds):
            joins, leaves = len(model.joins), len(model.leaves)
            model.run(1, wanted=wanted)
            joined = {shard for _, shard in model.joins[joins:]}
            left = {shard for _, shard in model.leaves[leaves:]}
            assert not joined & subscribed
            assert left <= subscribed
            subscribed = (subscribed | joined) - left
            assert tuple(sorted(subscribed)) == model.plan.shards
            # One more than the most while one is exchanged.
            assert 1 <= len(subscribed) <= min(len(rates), 7)


# Demand


def test_demand_is_what_a_round_wants_times_rounds_and_waste() -> None:
    meter = DemandMeter(external=4, oversample=8)
    for second in range(120):
        status = {"round": second // 2, "external_sampled": 30 * second, "groups_external_used": 10}
        wanted = demand_of(meter, status, float(second))
    assert wanted == pytest.approx(4 * 8 * 0.5, rel=0.05), "waste is bounded by oversample"
    for second in range(120, 400):
        status = {"round": second // 2, "external_sampled": 3, "groups_external_used": 2}
        wanted = demand_of(meter, status, float(second))
    assert wanted == pytest.approx(4 * 1.5 * 0.5, rel=0.05)


def test_a_trainer_that_starts_again_or_says_nonsense_does_no_harm() -> None:
    meter = DemandMeter(external=4, oversample=8)
    for second in range(60):
        demand_of(meter, {"round": 100 + second}, float(second))
    assert demand_of(meter, {"round": 3}, 60.0) > 0
    assert demand_of(meter, {"round": 4}, 61.0) == pytest.approx(4.0, rel=0.1)
    garbage: list[dict[str, object]] = [{}, {"round": "x"}, {"external_sampled": []}, {"round": -5}]
    for nonsense in garbage:
        assert demand_of(meter, nonsense, 62.0) >= 0
