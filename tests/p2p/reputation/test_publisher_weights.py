"""Publishers are sampled by the signal of their groups, relative to own groups."""

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


def report(
    weights: PublisherWeights,
    publisher: PeerId,
    rewards: tuple[float, ...],
    times: int = 1,
    *,
    family: str = "sums",
    now: float = 0.0,
    source: str = "",
) -> None:
    for _ in range(times):
        weights.report(
            GroupId(next(_ids).to_bytes(16, "big")),
            publisher=publisher,
            family=family,
            rewards=rewards,
            own=publisher == ME,
            now=now,
            source=source,
        )


def trained_weights(*, useful: int = 3) -> PublisherWeights:
    """Return the weights of a node of whose own groups `useful` in ten have signal."""
    weights = PublisherWeights()
    for number in range(400):
        report(weights, ME, GOOD if number % 10 < useful else BAD)
    return weights


def test_who_teaches_nothing_fades_and_who_teaches_as_own_groups_do_does_not() -> None:
    weights = trained_weights()
    for _ in range(10):
        report(weights, EVE, BAD, 10)
        report(weights, ANN, BAD, 7)
        report(weights, ANN, GOOD, 3)
    assert weights.weight(EVE, 0.0) < 0.05
    assert weights.weight(ANN, 0.0) == 1.0
    assert weights.weight(NEW, 0.0) == 1.0, "nothing is known of it"


def test_answers_that_are_all_right_teach_no_more_than_answers_that_are_all_wrong() -> None:
    weights = trained_weights()
    report(weights, ANN, ALL_RIGHT, 60)
    report(weights, EVE, BAD, 60)
    assert weights.weight(ANN, 0.0) == weights.weight(EVE, 0.0) < 0.1


def test_where_local_groups_give_no_signal_no_publisher_is_blamed() -> None:
    weights = trained_weights(useful=0)
    report(weights, EVE, BAD, 500)
    assert weights.weight(EVE, 0.0) == 1.0
    before_any = PublisherWeights()
    report(before_any, EVE, BAD, 500)
    assert before_any.weight(EVE, 0.0) == 1.0


def test_token_rewards_are_not_useful_compared_with_real_ones() -> None:
    weights = trained_weights()
    report(weights, EVE, (0.0, 0.01, 0.02), 100)
    assert weights.weight(EVE, 0.0) < 0.05


def test_the_usual_rate_is_estimated_by_family_or_from_all() -> None:
    weights = trained_weights(useful=9)
    report(weights, ME, BAD, 100, family="hard")
    report(weights, ANN, BAD, 12, family="hard")
    report(weights, EVE, BAD, 12)
    report(weights, BOB, BAD, 12, family="unknown")
    assert weights.weight(ANN, 0.0) == 1.0, "own groups have no signal there either"
    assert weights.weight(EVE, 0.0) < weights.weight(BOB, 0.0) < 1.0


@pytest.mark.parametrize("perfect", [1, 5, 50])
def test_how_good_others_are_changes_nothing_for_anybody(perfect: int) -> None:
    """Five perfect publishers must not raise the expected spread, or every honest one looks
    useless."""
    weights = trained_weights()
    for _ in range(20):
        for number in range(perfect):
            report(weights, PeerId(f"perfect-{number}"), GOOD, 5)
        report(weights, BOB, BAD, 9)
        report(weights, BOB, (0.0, 1.0))
    assert weights.weight(BOB, 0.0) == 1.0


@pytest.mark.parametrize("seed", range(6))
def test_beginners_that_are_right_once_in_thirty_are_not_blamed_by_each_other(seed: int) -> None:
    rng = random.Random(seed)
    weights = PublisherWeights()
    others = [PeerId(f"beginner-{number}") for number in range(8)]
    for _ in range(100):
        for publisher in (ME, *others):
            report(weights, publisher, GOOD if rng.random() < 1 / 30 else BAD)
    found = [weights.weight(publisher, 0.0) for publisher in others]
    assert min(found) > 0.25, "by luck alone, and not for long"
    assert sum(found) > 7.0


def test_one_right_group_buys_no_half_hour_and_a_hundred_no_hundreds() -> None:
    weights = trained_weights()
    report(weights, EVE, GOOD)
    report(weights, EVE, BAD, 40)
    assert weights.weight(EVE, 0.0) < 0.5
    report(weights, NEW, GOOD, 100)
    report(weights, NEW, BAD, 60)
    assert weights.weight(NEW, 0.0) < 0.75
    report(weights, NEW, BAD, 60)
    assert weights.weight(NEW, 0.0) < 0.25


def test_the_next_name_of_a_source_begins_where_its_last_ones_ended() -> None:
    weights = trained_weights()
    for number in range(100):
        report(weights, PeerId(f"fresh-{number}"), BAD, source="bad")
    assert weights.weight(NEW, 0.0, "bad") < 0.05
    assert weights.weight(NEW, 0.0) == 1.0, "where it is forwarded"
    assert weights.weight(NEW, 0.0, "good") == 1.0
    report(weights, NEW, GOOD, 30, source="bad")
    assert weights.weight(NEW, 0.0, "bad") == 1.0, "its own record counts by now"


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
    all_reports, without_bob = PublisherWeights(), PublisherWeights()
    now = 0.0
    for publisher, rewards, family, later in reports:
        now += later
        report(all_reports, publisher, rewards, family=family, now=now)
        if publisher != BOB:
            report(without_bob, publisher, rewards, family=family, now=now)
    for publisher in (ANN, BOB, EVE, NEW):
        assert FLOOR <= all_reports.weight(publisher, now) <= 1.0
    for publisher in (ANN, EVE):
        assert all_reports.row(publisher, now) == without_bob.row(publisher, now)


def test_a_group_counts_once_and_no_number_is_believed_unseen() -> None:
    weights = trained_weights()
    for _ in range(50):
        weights.report(
            GroupId(b"same"), publisher=EVE, family="sums", rewards=BAD, own=False, now=0.0
        )
    assert weights.row(EVE, 0.0).groups == 1.0
    report(weights, EVE, (math.nan, math.inf), 10)
    report(weights, EVE, (), 10)
    assert weights.row(EVE, 0.0).groups == 1.0
    report(weights, ANN, (-5.0, 1e300), 1)
    assert weights.row(ANN, 0.0).useful == 1.0


def test_time_forgives_and_learning_is_noticed() -> None:
    weights = trained_weights()
    report(weights, BOB, BAD, 100)
    before = weights.weight(BOB, 0.0)
    assert before < 0.05
    assert weights.weight(BOB, 2 * HALF_LIFE_SECONDS) > 5 * before
    report(weights, BOB, GOOD, 20)
    assert weights.weight(BOB, 0.0) == 1.0


def test_a_row_survives_saving() -> None:
    weights = trained_weights()
    report(weights, EVE, BAD, 30)
    row = weights.row(EVE, 0.0)
    other = PublisherWeights()
    other.restore(EVE, row, 100.0, age_s=0.0)
    assert other.weight(EVE, 100.0) == pytest.approx(weights.weight(EVE, 0.0))
    other.restore(EVE, row, 100.0, age_s=10 * HALF_LIFE_SECONDS)
    assert other.weight(EVE, 100.0) == 1.0
    weights.forgive(EVE)
    assert weights.weight(EVE, 0.0) == 1.0


def test_records_are_bounded() -> None:
    weights = trained_weights()
    for number in range(5000):
        report(weights, PeerId(f"name-{number}"), BAD, source=f"source-{number}")
    assert len(weights.rows(0.0)) == 4096
    assert weights.row(PeerId("name-4999"), 0.0).groups == 1.0
    assert weights.row(PeerId("name-0"), 0.0).groups == 0.0
