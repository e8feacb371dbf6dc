"""The share of one source, in simulated runs of honest publishers and one that is always right.

A scenario is a trainer's rule alone, with the real strategy: it draws groups network by
network, gathers what is usable, chooses, and trains.  Only the rewards are made up.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shoal_policy.choice.advantage import group_advantages
from shoal_policy.choice.sources import UNKNOWN_NETWORK, Candidate, SourceQuota
from shoal_policy.choice.strategy import ExternalStrategy, parse_strategy

DEFAULT = parse_strategy("positive+balance")
OVERSAMPLE, LOCAL, ANSWERS, FAMILIES = 8, 4, 8, 6
HONEST = tuple(f"honest{n}" for n in range(8))


def signal(num_right: int) -> float:
    advantages = group_advantages([float(n < num_right) for n in range(ANSWERS)])
    return sum(advantages[index] for index in DEFAULT.select_completions(advantages))


class QuotaScenario:
    """A trainer among eight publishers, each by its own network, and an attacker's networks."""

    def __init__(
        self,
        seed: int,
        useful: float,
        *,
        networks: int = 0,
        places: int = 8,
        strategy: ExternalStrategy = DEFAULT,
    ) -> None:
        self._rng = random.Random(seed)
        self._useful, self._places, self._strategy = useful, places, strategy
        self._hostile = tuple(f"hostile{n}" for n in range(networks))
        self._ready: dict[str, list[Candidate]] = {n: [] for n in (*HONEST, *self._hostile)}
        self._sources = SourceQuota()
        self.signal = Counter[str]()
        self.trained = 0

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            for network, ready in self._ready.items():
                ready.extend(self._published(network))
                del ready[:-64]
            self._round()

    def _published(self, network: str) -> Iterator[Candidate]:
        is_honest = network in HONEST
        for _ in range(4 if is_honest else 20):
            right = 4
            if is_honest:
                gave_signal = self._rng.random() < self._useful
                right = self._rng.choice((1, 1, 1, 2, 2, 3, 4)) if gave_signal else 0
            yield Candidate(
                family=f"family{self._rng.randrange(FAMILIES)}",
                signal=signal(right),
                network=network,
            )

    def _round(self) -> None:
        self._sources = self._sources.next_round()
        usable: list[Candidate] = []
        budget = OVERSAMPLE * (LOCAL + self._places)
        counted = 0
        while counted < self._strategy.num_candidates(self._places) and budget:
            networks = [network for network, ready in self._ready.items() if ready]
            if not networks:
                break
            ready = self._ready[self._rng.choice(networks)]
            one = ready.pop(self._rng.randrange(len(ready)))
            budget -= 1
            if one.signal:
                usable.append(one)
                counted += self._strategy.counts_towards_target(one, self._sources)
        chosen = self._strategy.choose(usable, self._places, sources=self._sources)
        for index, one in enumerate(usable):
            if index in chosen:
                self._sources.add(one)
                self.signal[one.network] += one.signal  # type: ignore[assignment]
                self.trained += 1
            else:
                self._ready[one.network].append(one)

    def hostile_share(self) -> float:
        total = self.signal.total()
        return sum(v for n, v in self.signal.items() if n in self._hostile) / total if total else 0


SEEDS = range(5)
OFTEN_USEFUL = [pytest.param(useful, marks=pytest.mark.slow) for useful in (0.3, 0.5)]
"""Where others are more often useful, an attacker gives a smaller share of the signal."""


@pytest.mark.parametrize("useful", [0.1, *OFTEN_USEFUL])
@pytest.mark.parametrize("places", [4, 8])
def test_one_network_gives_no_more_than_its_ceiling(useful: float, places: int) -> None:
    """Five courses of a hundred rounds, thirty in all. Names and connections have no say."""
    shares = []
    for seed in SEEDS:
        scenario = QuotaScenario(seed, useful, networks=1, places=places)
        scenario.run(100)
        shares.append(scenario.hostile_share())
    assert sum(shares) / len(shares) <= 0.15, shares


@pytest.mark.slow
@pytest.mark.parametrize("useful", [0.1, *OFTEN_USEFUL])
def test_twenty_networks_give_little_more_than_their_share_of_networks(useful: float) -> None:
    shares = []
    for seed in SEEDS:
        scenario = QuotaScenario(seed, useful, networks=20, places=4)
        scenario.run(100)
        shares.append(scenario.hostile_share())
    assert sum(shares) / len(shares) <= 20 / 28 + 0.1, shares


@pytest.mark.parametrize("useful", [0.1, *OFTEN_USEFUL])
def test_honest_publishers_hardly_lose_by_it(useful: float) -> None:
    """Compared with the same runs without ceilings."""
    free = ExternalStrategy(
        orders=DEFAULT.orders, advantage_tests=DEFAULT.advantage_tests, has_ceilings=False
    )
    with_it = without = 0.0
    for seed in SEEDS:
        for strategy in (DEFAULT, free):
            scenario = QuotaScenario(seed, useful, strategy=strategy)
            scenario.run(100)
            if strategy is free:
                without += scenario.signal.total()
            else:
                with_it += scenario.signal.total()
    assert with_it >= 0.95 * without


def test_a_single_source_fills_all_slots() -> None:
    one = candidate("only", 3.0)
    sources = SourceQuota()
    for _ in range(50):
        sources = sources.next_round()
        chosen = DEFAULT.choose([one] * 8, 8, sources=sources)
        assert len(chosen) == 8
        for _ in chosen:
            sources.add(one)


def test_a_large_source_is_still_trained_on_next_to_a_small_one() -> None:
    sources, taken = SourceQuota(), 0
    for number in range(100):
        sources = sources.next_round()
        offered = [candidate("strong", 3.0) for _ in range(8)]
        if number % 20 == 0:
            offered.append(candidate("weak", 3.0))
        for index in DEFAULT.choose(offered, 8, sources=sources):
            sources.add(offered[index])
            taken += offered[index].network == "strong"
    assert taken >= 100


def test_a_trickle_from_many_networks_hardly_lowers_anybodys_ceiling() -> None:
    """Networks are counted by what they give: 200 that give next to nothing are no 200."""
    sources, taken = SourceQuota(), 0
    offered = [candidate(network, 3.0) for network in HONEST]
    for _ in range(100):
        sources = sources.next_round()
        for number in range(200):
            sources.add(candidate(f"trickle{number}", 0.02))
        for index in DEFAULT.choose(offered, 8, sources=sources):
            sources.add(offered[index])
            taken += 1
    assert taken >= 0.95 * 800


def candidate(network: str, given: float) -> Candidate:
    return Candidate(family="sums", signal=given, network=network)


@hypothesis_settings(max_examples=200, deadline=None)
@given(
    groups=st.lists(
        st.tuples(st.integers(0, 9), st.floats(0.0, 10.0)),
        max_size=40,
    ),
    places=st.integers(1, 12),
    rounds=st.integers(1, 12),
)
def test_no_choice_breaks_its_bounds(
    groups: list[tuple[int, float]], places: int, rounds: int
) -> None:
    """Two hundred generated swarms: at most J, each once, none over its ceiling."""
    offered = [
        Candidate(
            family=f"{number % 3}",
            signal=given_signal,
            network=f"n{network}" if network else UNKNOWN_NETWORK,
        )
        for number, (network, given_signal) in enumerate(groups)
    ]
    sources = SourceQuota()
    for _ in range(rounds):
        sources = sources.next_round()
        chosen = DEFAULT.choose(offered, places, sources=sources)
        assert len(chosen) <= places
        assert len(set(chosen)) == len(chosen)
        full = places * sum(one.signal for one in offered) / max(1, len(offered))
        before = sources.copy()
        for index in chosen:
            assert not before.is_exceeded(offered[index], full)
            before.add(offered[index])
        sources = before


def test_the_papers_bases_have_no_ceilings() -> None:
    assert not parse_strategy("uniform").has_ceilings
    assert parse_strategy("positive").has_ceilings
