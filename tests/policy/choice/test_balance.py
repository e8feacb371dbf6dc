"""The balance of own and others' groups: which way it moves, and that it is no worse than alone."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.choice.balance import IDLE, PACE, REST, VISIT, Balance, Seen

PLENTY = Seen(own_signal=0.2, drawn=20, usable=8, exhausted=False, reward=0.3)
"""More than there are places for."""
NOTHING = Seen(own_signal=0.2, drawn=0, usable=0, exhausted=True, reward=0.3)
"""The buffer is empty."""
JUNK = Seen(own_signal=0.2, drawn=40, usable=0, exhausted=True, reward=0.3)
"""Others offer much, and nothing of it teaches."""


def played(start: Balance, seen: Seen, rounds: int) -> Balance:
    for _ in range(rounds):
        start = asked(start, seen)
        start = start.after(seen if start.external else alone(seen))
    return start


def asked(now: Balance, seen: Seen) -> Balance:
    """As a round begins, where so much is on offer as will be seen."""
    return now.told(on_offer=bool(seen.drawn)) if now.asks else now


def alone(seen: Seen) -> Seen:
    return Seen(
        own_signal=seen.own_signal, drawn=None, usable=0, exhausted=True, reward=seen.reward
    )


def test_it_starts_where_it_was_set_and_goes_home_one_place_at_a_time() -> None:
    now = Balance.start(6, 2)
    course = [now.local]
    for _ in range(8 * PACE):
        now = now.after(JUNK)
        course.append(now.local)
    assert course[:PACE] == [6] * PACE
    assert course[-1] == 8
    assert max(abs(a - b) for a, b in pairwise(course)) == 1


def test_as_many_places_as_pay_become_others_at_once() -> None:
    home = played(Balance.start(4, 4), JUNK, 60)
    assert home.local == 8
    course = []
    for _ in range(2 * VISIT):
        home = played(home, PLENTY, 1)
        course.append(home.local)
    # A visit or two, and all at once.
    assert set(course) == {8, 4}


def test_a_round_with_nothing_on_offer_is_played_as_if_alone() -> None:
    now = played(Balance.start(4, 4), PLENTY, 60)
    for _ in range(100):
        now = now.told(on_offer=False)
        assert (now.own, now.external) == (8, 0)
        now = now.after(alone(NOTHING))
    assert now.told(on_offer=True).external == 4, "and it is back with the first group"


def test_while_nothing_is_on_offer_what_was_known_of_others_moves_nothing() -> None:
    busy = Seen(own_signal=0.6, drawn=0, usable=0, exhausted=True, reward=0.3)
    assert played(Balance.start(4, 4), busy, 60).told(on_offer=True).external == 4


def test_home_it_comes_out_for_the_first_that_is_on_offer() -> None:
    home = played(played(Balance.start(4, 4), JUNK, 60), NOTHING, 60)
    assert (home.own, home.asks) == (8, True)
    assert (home.told(on_offer=True).own, home.told(on_offer=False).own) == (7, 8)


@pytest.mark.parametrize("start", [(4, 4), (6, 2), (2, 6), (8, 0)])
def test_half_of_the_places_are_others_where_they_fill_them(start: tuple[int, int]) -> None:
    now = played(Balance.start(*start), PLENTY, 120)
    assert (now.own, now.external) == (4, 4)


@pytest.mark.parametrize(("nothing", "looks"), [(NOTHING, 0), (JUNK, 10)])
@pytest.mark.parametrize("start", [(4, 4), (2, 6), (6, 2)])
def test_it_goes_home_where_others_offer_nothing_and_looks_now_and_then(
    start: tuple[int, int], nothing: Seen, looks: int
) -> None:
    now = played(Balance.start(*start), nothing, 60)
    visits = 0
    for _ in range(10 * VISIT):
        now = asked(now, nothing)
        assert now.own + now.external == 8
        assert now.external <= 1
        visits += now.external
        now = now.after(nothing if now.external else alone(nothing))
    assert visits == looks


def test_it_is_home_at_once_where_there_is_nothing_at_all() -> None:
    assert asked(Balance.start(4, 4), NOTHING).own == 8


@pytest.mark.parametrize("nothing", [NOTHING, JUNK])
def test_it_comes_out_again(nothing: Seen) -> None:
    home = played(Balance.start(4, 4), nothing, 60)
    assert asked(home, nothing).own == 8
    assert (played(home, PLENTY, 60).own, played(home, PLENTY, 60).external) == (4, 4)


def test_where_hardly_anything_teaches_one_place_is_for_looking() -> None:
    """Right answers are rare here and there: all that others offer is worth a look."""
    rare = Seen(own_signal=0.0, drawn=40, usable=0, exhausted=True, reward=0.0)
    assert played(Balance.start(4, 4), rare, 80).external == 1
    nothing = Seen(own_signal=0.0, drawn=0, usable=0, exhausted=True, reward=0.0)
    assert played(played(Balance.start(4, 4), nothing, 40), rare, 80).local == 7


def test_the_noise_of_few_questions_is_no_forgetting() -> None:
    now = Balance.start(4, 4)
    for number in range(200):
        reward = 0.02 + 0.03 * (number % 2)
        now = now.after(Seen(own_signal=0.1, drawn=9, usable=8, exhausted=False, reward=reward))
    assert (now.local, now.rest) == (4, 0)


def test_forgetting_makes_it_answer_more_and_rest() -> None:
    learnt = played(
        Balance.start(4, 4),
        Seen(own_signal=0.5, drawn=9, usable=8, exhausted=False, reward=0.8),
        60,
    )
    assert learnt.local == 4
    fallen = Seen(own_signal=0.5, drawn=9, usable=8, exhausted=False, reward=0.0)
    forgot = played(learnt, fallen, 5 * PACE)
    assert forgot.local > learnt.local
    assert 0 < forgot.rest <= REST


class Swarm:
    """What a round of so many nodes finds: own groups and others', each with a chance."""

    def __init__(self, seed: int, own: float, other: float, offered: int) -> None:
        self.rng = random.Random(seed)
        self.own, self.other, self.offered = own, other, offered

    def round(self, own: int, external: int) -> tuple[Seen, float]:
        """One round's view, and the groups with signal that it trains on."""
        mine = sum(self.rng.random() < self.own for _ in range(own))
        usable = sum(self.rng.random() < self.other for _ in range(self.offered))
        found = min(usable, external + 1)
        drawn = self.offered if external else None
        seen = Seen(
            own_signal=mine / own if own else None,
            drawn=drawn,
            usable=found if external else 0,
            exhausted=found == usable,
            reward=0.3,
        )
        return seen, mine + min(usable, external)


@settings(max_examples=60, derandomize=True)
@given(
    own=st.floats(0.0, 0.9),
    other=st.floats(0.0, 0.9),
    offered=st.integers(0, 60),
    start=st.sampled_from([(4, 4), (2, 6), (6, 2), (8, 0)]),
    seed=st.integers(0, 1 << 16),
)
def test_it_is_never_worse_than_alone(
    own: float, other: float, offered: int, start: tuple[int, int], seed: int
) -> None:
    """Whatever others offer: by groups with signal, all of which count alike."""
    swarm, now, total, rounds = Swarm(seed, own, other, offered), Balance.start(*start), 0.0, 300
    for number in range(rounds + 60):
        now = now.told(on_offer=offered > 0)
        seen, found = swarm.round(now.own, now.external)
        now = now.after(seen)
        total += found if number >= 60 else 0.0
    alone_s = own * 8 * rounds
    noise = 4 * (8 * rounds * 0.25) ** 0.5
    # The visits, or the place that is for looking; where nothing is on offer neither.
    place = max(own, IDLE) * rounds / VISIT + IDLE * rounds
    assert total >= alone_s - (place if offered else 0.0) - noise


@settings(max_examples=30, derandomize=True)
@given(
    own=st.floats(0.02, 0.6),
    offered=st.integers(0, 60),
    before=st.integers(0, 60),
    seed=st.integers(0, 1 << 16),
)
def test_it_finds_most_of_what_the_best_fixed_places_find(
    own: float, offered: int, before: int, seed: int
) -> None:
    """Nothing is on offer at first, then as much as `offered`: it follows."""
    swarm, now, total, rounds = Swarm(seed, own, own, 0), Balance.start(4, 4), 0.0, 300
    for number in range(before + 60 + rounds):
        swarm.offered = offered if number >= before else 0
        now = now.told(on_offer=swarm.offered > 0)
        seen, found = swarm.round(now.own, now.external)
        now = now.after(seen)
        total += found if number >= before + 60 else 0.0
    fixed = []
    for external in range(5):
        other = Swarm(seed + 1, own, own, offered)
        fixed.append(sum(other.round(8 - external, external)[1] for _ in range(rounds)))
    assert total >= 0.85 * max(fixed) - 20


@settings(derandomize=True)
@given(
    st.integers(0, 12),
    st.integers(0, 12),
    st.lists(
        st.tuples(
            st.none() | st.floats(0, 1),
            st.none() | st.integers(0, 60),
            st.integers(0, 30),
            st.booleans(),
            st.none() | st.floats(0, 1),
            st.booleans(),
        ),
        min_size=1,
        max_size=60,
    ),
)
def test_whatever_it_sees_its_sum_stays(
    local: int,
    external: int,
    course: list[tuple[float | None, int | None, int, bool, float | None, bool]],
) -> None:
    now = Balance.start(local, external)
    for own_signal, drawn, usable, exhausted, reward, on_offer in course:
        now = now.told(on_offer=on_offer)
        assert on_offer or now.own == local + external
        now = now.after(
            Seen(
                own_signal=own_signal,
                drawn=drawn,
                usable=usable,
                exhausted=exhausted,
                reward=reward,
            )
        )
        assert now.own + now.external == local + external
        assert min(now.own, now.external) >= 0
        assert now.external <= max(external, (local + external) // 2)
        assert json.loads(json.dumps(now.to_json()))


def test_it_is_kept_in_a_checkpoint() -> None:
    now = played(Balance.start(4, 4), PLENTY, 7)
    kept = json.loads(json.dumps(now.to_json()))
    assert Balance.from_json(kept, 4, 4) == now
    assert Balance.from_json({**kept, "unheard_of": 1}, 4, 4) == now
    assert Balance.from_json(kept, 4, 2) == Balance.start(4, 2), "another I + J is another balance"
    assert Balance.from_json(None, 4, 4) == Balance.start(4, 4)


def test_one_that_an_earlier_version_saved_keeps_its_i_and_j() -> None:
    earlier = {"local": 3, "total": 8, "own_signal": 0.2, "filled": 0.5, "drawn": 0.5, "dry": 0.1}
    resumed = Balance.from_json(earlier, 4, 4)
    assert (resumed.local, resumed.external) == (3, 5)
    assert played(resumed, PLENTY, 60).own == 4
