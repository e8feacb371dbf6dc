"""Who is drawn how often: the useful fully, the useless hardly, strangers and names in bounds."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from p2p.standing.sampling import (
    FEW_PROVEN,
    FLOOR,
    HALF_LIFE_SECONDS,
    LEAST,
    STRANGER_SHARE,
    USELESS_SHARE,
    SamplingStandings,
    Standing,
    draw_weights,
)
from shoal_wire.types import GroupId, PeerId

ANN, BOB, EVE, NEW = map(PeerId, ("ann", "bob", "eve", "new"))
GOOD, BAD = (0.0, 1.0), (0.0, 0.0)
_ids = itertools.count()


def tell(
    standings: SamplingStandings,
    publisher: PeerId,
    rewards: tuple[float, ...],
    times: int = 1,
    *,
    family: str = "sums",
    own: bool = False,
    now: float = 0.0,
) -> None:
    for _ in range(times):
        group_id = GroupId(next(_ids).to_bytes(16, "big"))
        standings.report(
            group_id, publisher=publisher, family=family, rewards=rewards, own=own, now=now
        )


def test_useless_groups_beside_useful_ones_fade_within_a_dozen() -> None:
    standings = SamplingStandings()
    tell(standings, ANN, GOOD, 12)
    tell(standings, EVE, BAD, 12)
    assert standings.weight(ANN, 0.0) == 1.0
    assert standings.weight(EVE, 0.0) < 0.03
    assert standings.weight(BOB, 0.0) == 1.0, "a stranger"


def test_where_nobody_earns_anything_nobody_is_accused() -> None:
    standings = SamplingStandings()
    tell(standings, ANN, BAD, 100, own=True)
    tell(standings, EVE, BAD, 100)
    assert standings.weight(EVE, 0.0) == 1.0


def test_own_groups_are_a_measure_but_have_no_record() -> None:
    standings = SamplingStandings()
    tell(standings, ANN, GOOD, 20, own=True)
    tell(standings, EVE, BAD, 20)
    assert standings.weight(EVE, 0.0) < 0.02
    assert standings.groups(ANN, 0.0) == 0.0


def test_token_rewards_are_not_useful_beside_real_ones() -> None:
    standings = SamplingStandings()
    tell(standings, ANN, GOOD, 20)
    tell(standings, EVE, (0.0, 0.01, 0.02), 30)
    assert standings.weight(EVE, 0.0) < 0.05


def test_a_weak_peer_that_is_right_one_time_in_four_keeps_its_whole_share() -> None:
    standings = SamplingStandings()
    tell(standings, ANN, GOOD, 20)
    for _ in range(20):
        tell(standings, BOB, BAD, 3)
        tell(standings, BOB, GOOD)
    assert standings.weight(BOB, 0.0) > 0.9


def test_six_useless_groups_do_not_condemn_and_one_useful_group_proves() -> None:
    standings = SamplingStandings()
    tell(standings, ANN, GOOD, 9, own=True)
    tell(standings, BOB, BAD, 6)
    tell(standings, EVE, BAD, 11)
    assert standings.standing(BOB, 0.0) is standings.standing(NEW, 0.0) is Standing.STRANGER
    assert standings.standing(EVE, 0.0) is Standing.USELESS
    assert 0.09 < standings.weight_alone(BOB, 0.0) < standings.weight_alone(NEW, 0.0) == 1.0
    tell(standings, BOB, GOOD)
    assert standings.standing(BOB, 0.0) is Standing.STRANGER, "it may be either"
    assert standings.weight_alone(BOB, 0.0) == 1.0
    tell(standings, NEW, GOOD)
    assert standings.standing(NEW, 0.0) is Standing.PROVEN
    tell(standings, EVE, GOOD)
    assert standings.standing(EVE, 0.0) is Standing.STRANGER, "nobody is condemned for good"
    tell(standings, EVE, (0.0, 0.05), 8)
    assert standings.standing(EVE, 0.0) is Standing.USELESS, "token rewards speak for nobody"


def test_the_first_that_proves_useful_is_not_nearly_all_that_is_drawn() -> None:
    standings = SamplingStandings()
    tell(standings, ANN, GOOD)
    names = [PeerId(f"stranger-{n}") for n in range(1000)]
    weights = standings.weights([ANN, *names], 0.0)
    assert weights[ANN] / sum(weights.values()) == pytest.approx(1 / (1 + FEW_PROVEN / 4))


def test_a_group_counts_once_and_no_number_is_believed_unseen() -> None:
    standings = SamplingStandings()
    tell(standings, ANN, GOOD, 5)
    for _ in range(50):
        standings.report(
            GroupId(b"same"), publisher=EVE, family="sums", rewards=BAD, own=False, now=0.0
        )
    assert standings.groups(EVE, 0.0) == 1.0
    tell(standings, EVE, (math.nan, math.inf), 10)
    tell(standings, EVE, (), 10)
    assert standings.groups(EVE, 0.0) == 1.0
    tell(standings, ANN, (-5.0, 1e300), 1)
    assert standings.weight(ANN, 0.0) == 1.0


def test_time_forgives_and_learning_is_noticed() -> None:
    standings = SamplingStandings()
    tell(standings, ANN, GOOD, 20)
    tell(standings, BOB, BAD, 60)
    assert standings.weight(BOB, 0.0) == FLOOR
    assert standings.weight(BOB, 6 * HALF_LIFE_SECONDS) > 0.2
    tell(standings, BOB, GOOD, 40)
    assert standings.weight(BOB, 0.0) == 1.0


@pytest.mark.parametrize("liars", [1, 10, 1000])
def test_names_buy_nothing(liars: int) -> None:
    standings = SamplingStandings()
    honest = [PeerId(f"honest-{n}") for n in range(4)]
    useless = [PeerId(f"useless-{n}") for n in range(liars)]
    for peer in honest:
        tell(standings, peer, GOOD, 10)
    for peer in useless:
        tell(standings, peer, BAD, 30)
        tell(standings, honest[0], GOOD)
    weights = standings.weights([*honest, *useless], 0.0)
    assert sum(weights[p] for p in useless) / sum(weights.values()) <= USELESS_SHARE + 1e-9
    strangers = [PeerId(f"stranger-{n}") for n in range(liars)]
    weights = standings.weights([*honest, *strangers], 0.0)
    share = sum(weights[p] for p in strangers) / sum(weights.values())
    assert 0 < share <= STRANGER_SHARE + 1e-9


def test_alone_strangers_share_alike() -> None:
    standings = SamplingStandings()
    assert standings.weights([ANN, BOB, EVE], 0.0) == {ANN: 1.0, BOB: 1.0, EVE: 1.0}


def test_a_row_survives_saving() -> None:
    standings, later = SamplingStandings(), SamplingStandings()
    tell(standings, ANN, GOOD, 9)
    tell(standings, EVE, BAD, 9)
    for row in standings.rows(0.0):
        later.restore(row, 50.0, age_s=0.0)
    assert later.weight(EVE, 50.0) == pytest.approx(standings.weight(EVE, 0.0))
    forgiven = SamplingStandings()
    forgiven.restore(standings.row(EVE, 0.0), 0.0, age_s=20 * HALF_LIFE_SECONDS)
    assert forgiven.weight(EVE, 0.0) > 0.9


def test_memory_is_bounded() -> None:
    standings = SamplingStandings()
    rng = random.Random(1)
    for number in range(12_000):
        tell(standings, PeerId(f"p{number}"), GOOD, family=f"f{rng.randrange(2000)}")
    assert len(standings._records) <= 4096
    assert len(standings._usual) <= 1024
    assert len(standings._reported) <= 8192


# Factors on the chance of being drawn, by the setting `draws`

STANDING = {ANN: 1.0, BOB: 1.0, EVE: 0.01, NEW: 0.2}
BROUGHT = {ANN: 80, BOB: 40, EVE: 800}


def test_by_standing_as_it_is() -> None:
    assert draw_weights("standing", STANDING, BROUGHT) == STANDING


def test_uniform_knows_only_the_blocked() -> None:
    assert draw_weights("uniform", STANDING, BROUGHT) is None
    assert draw_weights("uniform", {**STANDING, EVE: 0.0}, BROUGHT) == {EVE: 0.0}


def test_who_contributes_twice_as_much_that_is_useful_is_drawn_from_twice_as_often() -> None:
    weights = draw_weights("contribution", STANDING, BROUGHT)
    assert weights is not None
    assert weights[ANN] == 2 * weights[BOB] == 1.0
    assert weights[EVE] < weights[BOB] / 100, "ten times as much of no use is worth nothing"
    assert weights[NEW] == 0.2 * LEAST, "a newcomer keeps a chance"


def test_nobody_has_brought_anything_useful_yet() -> None:
    assert draw_weights("contribution", STANDING, {}) == STANDING
    assert draw_weights("contribution", {}, {}) == {}
