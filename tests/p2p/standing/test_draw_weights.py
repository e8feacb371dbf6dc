"""Whose groups are drawn how often, by the setting `draws`."""

from __future__ import annotations

from p2p.standing.draw_weights import LEAST, draw_weights
from shoal_wire.types import PeerId

ANN, BOB, EVE, NEW = map(PeerId, ("ann", "bob", "eve", "new"))
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
