"""The balance of own and others' groups: which way it moves, and where it ends."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.choice.balance import PACE, REST, Balance, Seen

FILLED = Seen(own_signal=0.2, filled=1.0, drawn=0.3, reward=0.3)
"""Nothing is wanting."""
NOTHING = Seen(own_signal=0.2, filled=0.0, drawn=0.0, reward=0.3)
"""The buffer is empty."""


def played(start: Balance, seen: Seen, rounds: int) -> Balance:
    for _ in range(rounds):
        start = start.after(seen)
    return start


def test_it_starts_where_it_was_set_and_moves_one_group_at_a_time() -> None:
    now = Balance.start(4, 4)
    course = []
    for _ in range(3 * PACE):
        now = now.after(FILLED)
        course.append(now.local)
    assert course[: PACE - 1] == [4] * (PACE - 1)
    assert course[PACE - 1] == 3
    assert max(abs(a - b) for a, b in pairwise(course)) == 1


def test_filled_draws_take_groups_from_its_own_but_never_the_last_quarter() -> None:
    now = played(Balance.start(4, 4), FILLED, 100)
    assert (now.local, now.external) == (2, 6)


def test_an_empty_buffer_makes_it_answer_more() -> None:
    assert played(Balance.start(4, 4), NOTHING, 100).local == 6
    assert played(Balance.start(2, 6), NOTHING, 100).local == 6


def test_rare_signal_is_no_reason_to_draw_less() -> None:
    """Draws end at their bound with places empty: each still brings more than an own question."""
    rare = Seen(own_signal=0.05, filled=0.4, drawn=1.0, reward=0.01)
    assert played(Balance.start(4, 4), rare, 100).local < 4


@pytest.mark.parametrize(("supply", "start"), [(7, 2), (7, 6), (3, 2), (15, 6)])
def test_it_finds_where_most_groups_with_signal_are(supply: int, start: int) -> None:
    """Everybody answers I, of which a share has signal; each draws of what `supply` others say."""
    signal, look = 0.05, 8

    def seen(local: int) -> Seen:
        external = 8 - local
        drawn = min(look * external, supply * local)
        filled = min(1.0, signal * drawn / external)
        return Seen(own_signal=signal, filled=filled, drawn=drawn / (look * external), reward=0.1)

    def worth(local: int) -> float:
        found = seen(local).filled
        assert found is not None
        return signal * local + found * (8 - local)

    now = Balance.start(start, 8 - start)
    late = []
    for number in range(300):
        now = now.after(seen(now.local))
        if number >= 200:
            late.append(worth(now.local))
    assert sum(late) / len(late) >= 0.9 * max(map(worth, range(2, 7)))


def test_the_noise_of_few_questions_is_no_forgetting() -> None:
    now = Balance.start(4, 4)
    for number in range(200):
        reward = 0.02 + 0.03 * (number % 2)
        now = now.after(Seen(own_signal=0.1, filled=1.0, drawn=0.5, reward=reward))
    assert (now.local, now.rest) == (2, 0)


def test_own_groups_that_teach_as_much_as_others_are_kept() -> None:
    rich = Seen(own_signal=1.0, filled=1.0, drawn=0.2, reward=0.5)
    few = played(Balance.start(4, 4), FILLED, 40)
    assert (few.local, played(few, rich, 40).local) == (2, 4)


def test_forgetting_makes_it_answer_more_and_rest() -> None:
    learnt = played(
        Balance.start(4, 4), Seen(own_signal=0.5, filled=1.0, drawn=0.3, reward=0.8), 60
    )
    assert learnt.local == 2
    forgot = played(learnt, Seen(own_signal=0.5, filled=1.0, drawn=0.3, reward=0.0), 5 * PACE)
    assert forgot.local > learnt.local
    assert 0 < forgot.rest <= REST


@given(
    st.integers(0, 12),
    st.integers(0, 12),
    st.lists(st.tuples(*(st.none() | st.floats(0, 1) for _ in range(4))), min_size=1, max_size=60),
)
def test_whatever_it_sees_its_sum_stays_and_both_have_a_share(
    local: int, external: int, course: list[tuple[float | None, ...]]
) -> None:
    now = Balance.start(local, external)
    for own_signal, filled, drawn, reward in course:
        now = now.after(Seen(own_signal=own_signal, filled=filled, drawn=drawn, reward=reward))
        assert now.local + now.external == local + external
        assert min(local, now.least) <= now.local
        assert now.external >= 0


def test_it_is_kept_in_a_checkpoint() -> None:
    now = played(Balance.start(4, 4), FILLED, 7)
    kept = json.loads(json.dumps(now.to_json()))
    assert Balance.from_json(kept, 4, 4) == now
    assert Balance.from_json({**kept, "unheard_of": 1}, 4, 4) == now
    assert Balance.from_json(kept, 4, 2) == Balance.start(4, 2), "another I + J is another balance"
    assert Balance.from_json(None, 4, 4) == Balance.start(4, 4)
