"""A publisher is drawn by what its groups teach here, beside what own groups do."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.reputation.publisher_weights import FLOOR, HALF_LIFE_SECONDS, PublisherWeights
from shoal_wire.types import GroupId, PeerId

ME, ANN, BOB, EVE, NEW = map(PeerId, ("me", "ann", "bob", "eve", "new"))
GOOD, BAD, ALL_RIGHT = (0.0, 1.0), (0.0, 0.0), (1.0, 1.0)
_ids = itertools.count()


def tell(
    standings: PublisherWeights,
    publisher: PeerId,
    rewards: tuple[float, ...],
    times: int = 1,
    *,
    family: str = "sums",
    now: float = 0.0,
    source: str = "",
) -> None:
    for _ in range(times):
        standings.report(
            GroupId(next(_ids).to_bytes(16, "big")),
            publisher=publisher,
            family=family,
            rewards=rewards,
            own=publisher == ME,
            now=now,
            source=source,
        )


def learner(*, useful: int = 3) -> PublisherWeights:
    """Return the standings of a node of whose own groups so many in ten taught it something."""
    standings = PublisherWeights()
    for number in range(400):
        tell(standings, ME, GOOD if number % 10 < useful else BAD)
    return standings


def test_who_teaches_nothing_fades_and_who_teaches_as_own_groups_do_does_not() -> None:
    standings = learner()
    for _ in range(10):
        tell(standings, EVE, BAD, 10)
        tell(standings, ANN, BAD, 7)
        tell(standings, ANN, GOOD, 3)
    assert standings.weight(EVE, 0.0) < 0.05
    assert standings.weight(ANN, 0.0) == 1.0
    assert standings.weight(NEW, 0.0) == 1.0, "nothing is known of it"


def test_answers_that_are_all_right_teach_no_more_than_answers_that_are_all_wrong() -> None:
    standings = learner()
    tell(standings, ANN, ALL_RIGHT, 60)
    tell(standings, EVE, BAD, 60)
    assert standings.weight(ANN, 0.0) == standings.weight(EVE, 0.0) < 0.1


def test_where_own_groups_teach_nothing_nobody_is_accused() -> None:
    standings = learner(useful=0)
    tell(standings, EVE, BAD, 500)
    assert standings.weight(EVE, 0.0) == 1.0
    before_any = PublisherWeights()
    tell(before_any, EVE, BAD, 500)
    assert before_any.weight(EVE, 0.0) == 1.0


def test_token_rewards_are_not_useful_beside_real_ones() -> None:
    standings = learner()
    tell(standings, EVE, (0.0, 0.01, 0.02), 100)
    assert standings.weight(EVE, 0.0) < 0.05


def test_usual_is_learnt_by_family_and_elsewhere_from_all() -> None:
    standings = learner(useful=9)
    tell(standings, ME, BAD, 100, family="hard")
    tell(standings, ANN, BAD, 12, family="hard")
    tell(standings, EVE, BAD, 12)
    tell(standings, BOB, BAD, 12, family="unknown")
    assert standings.weight(ANN, 0.0) == 1.0, "own groups teach nothing there either"
    assert standings.weight(EVE, 0.0) < standings.weight(BOB, 0.0) < 1.0


@pytest.mark.parametrize("perfect", [1, 5, 50])
def test_how_good_others_are_changes_nothing_for_anybody(perfect: int) -> None:
    """Five perfect names once made every honest learner useless: the usual rose to theirs."""
    standings = learner()
    for _ in range(20):
        for number in range(perfect):
            tell(standings, PeerId(f"perfect-{number}"), GOOD, 5)
        tell(standings, BOB, BAD, 9)
        tell(standings, BOB, (0.0, 1.0))
    assert standings.weight(BOB, 0.0) == 1.0


@pytest.mark.parametrize("seed", range(6))
def test_beginners_that_are_right_once_in_thirty_do_not_condemn_each_other(seed: int) -> None:
    rng = random.Random(seed)
    standings = PublisherWeights()
    others = [PeerId(f"beginner-{number}") for number in range(8)]
    for _ in range(100):
        for publisher in (ME, *others):
            tell(standings, publisher, GOOD if rng.random() < 1 / 30 else BAD)
    weights = [standings.weight(publisher, 0.0) for publisher in others]
    assert min(weights) > 0.25, "by luck alone, and not for long"
    assert sum(weights) > 7.0


def test_one_right_group_buys_no_half_hour_and_a_hundred_no_hundreds() -> None:
    standings = learner()
    tell(standings, EVE, GOOD)
    tell(standings, EVE, BAD, 40)
    assert standings.weight(EVE, 0.0) < 0.5
    tell(standings, NEW, GOOD, 100)
    tell(standings, NEW, BAD, 60)
    assert standings.weight(NEW, 0.0) < 0.75
    tell(standings, NEW, BAD, 60)
    assert standings.weight(NEW, 0.0) < 0.25


def test_the_next_name_of_a_source_begins_where_its_last_ones_ended() -> None:
    standings = learner()
    for number in range(100):
        tell(standings, PeerId(f"fresh-{number}"), BAD, source="bad")
    assert standings.weight(NEW, 0.0, "bad") < 0.05
    assert standings.weight(NEW, 0.0) == 1.0, "where it is passed on"
    assert standings.weight(NEW, 0.0, "good") == 1.0
    tell(standings, NEW, GOOD, 30, source="bad")
    assert standings.weight(NEW, 0.0, "bad") == 1.0, "it counts for itself by now"


@settings(max_examples=50)
@given(
    reports=st.lists(
        st.tuples(
            st.sampled_from([ME, ANN, BOB, EVE]),
            st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=4).map(tuple),
            st.sampled_from(["sums", "words"]),
            st.floats(0.0, 3600.0),
        ),
        max_size=60,
    )
)
def test_whatever_is_reported_a_weight_is_a_share_and_only_own_groups_move_what_is_usual(
    reports: list[tuple[PeerId, tuple[float, ...], str, float]],
) -> None:
    all_told, without_bob = PublisherWeights(), PublisherWeights()
    now = 0.0
    for publisher, rewards, family, later in reports:
        now += later
        tell(all_told, publisher, rewards, family=family, now=now)
        if publisher != BOB:
            tell(without_bob, publisher, rewards, family=family, now=now)
    for publisher in (ANN, BOB, EVE, NEW):
        assert FLOOR <= all_told.weight(publisher, now) <= 1.0
    for publisher in (ANN, EVE):
        assert all_told.row(publisher, now) == without_bob.row(publisher, now)


def test_a_group_counts_once_and_no_number_is_believed_unseen() -> None:
    standings = learner()
    for _ in range(50):
        standings.report(
            GroupId(b"same"), publisher=EVE, family="sums", rewards=BAD, own=False, now=0.0
        )
    assert standings.row(EVE, 0.0).groups == 1.0
    tell(standings, EVE, (math.nan, math.inf), 10)
    tell(standings, EVE, (), 10)
    assert standings.row(EVE, 0.0).groups == 1.0
    tell(standings, ANN, (-5.0, 1e300), 1)
    assert standings.row(ANN, 0.0).useful == 1.0


def test_time_forgives_and_learning_is_noticed() -> None:
    standings = learner()
    tell(standings, BOB, BAD, 100)
    before = standings.weight(BOB, 0.0)
    assert before < 0.05
    assert standings.weight(BOB, 2 * HALF_LIFE_SECONDS) > 5 * before
    tell(standings, BOB, GOOD, 20)
    assert standings.weight(BOB, 0.0) == 1.0


def test_a_row_survives_saving() -> None:
    standings = learner()
    tell(standings, EVE, BAD, 30)
    row = standings.row(EVE, 0.0)
    other = PublisherWeights()
    other.restore(EVE, row, 100.0, age_s=0.0)
    assert other.weight(EVE, 100.0) == pytest.approx(standings.weight(EVE, 0.0))
    other.restore(EVE, row, 100.0, age_s=10 * HALF_LIFE_SECONDS)
    assert other.weight(EVE, 100.0) == 1.0
    standings.forgive(EVE)
    assert standings.weight(EVE, 0.0) == 1.0


def test_records_are_bounded() -> None:
    standings = learner()
    for number in range(5000):
        tell(standings, PeerId(f"name-{number}"), BAD, source=f"source-{number}")
    assert len(standings.rows(0.0)) == 4096
    assert standings.row(PeerId("name-4999"), 0.0).groups == 1.0
    assert standings.row(PeerId("name-0"), 0.0).groups == 0.0
