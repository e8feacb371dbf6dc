"""A peer's standing: rejects cost by who did what, time forgives, nothing earns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p.scoring import BAN_BELOW, HALF_LIFE_SECONDS, Scoreboard
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, verdict

SIGNER, FORWARDER = PeerId("signer"), PeerId("forwarder")
LIGHT, HEAVY = verdict(Reason.EMPTY_TEXT), verdict(Reason.BAD_SIGNATURE)


@pytest.mark.parametrize(
    ("judged", "of_signer", "of_forwarder"), [(LIGHT, -4.0, -1.0), (HEAVY, -20.0, -5.0)]
)
def test_each_cause_costs_what_the_table_says(
    judged: object, of_signer: float, of_forwarder: float
) -> None:
    board = Scoreboard()
    board.judge(judged, signer=SIGNER, forwarder=FORWARDER, now=0.0)  # type: ignore[arg-type]
    assert board.score(SIGNER, 0.0) == of_signer
    assert board.score(FORWARDER, 0.0) == of_forwarder
    # Who sends its own message is not charged twice.
    alone = Scoreboard()
    alone.judge(judged, signer=SIGNER, forwarder=SIGNER, now=0.0)  # type: ignore[arg-type]
    assert alone.score(SIGNER, 0.0) == of_signer
    unknown = Scoreboard()
    unknown.judge(judged, signer=None, forwarder=FORWARDER, now=0.0)  # type: ignore[arg-type]
    assert unknown.score(FORWARDER, 0.0) == of_forwarder


@pytest.mark.parametrize("reason", list(Reason))
def test_only_rejects_cost(reason: Reason) -> None:
    board = Scoreboard()
    judged = verdict(reason)
    board.judge(judged, signer=SIGNER, forwarder=FORWARDER, now=0.0)
    assert (board.score(SIGNER, 0.0) < 0) == (judged.outcome is Outcome.REJECT)


def test_points_come_back_by_half_lives() -> None:
    board = Scoreboard()
    board.judge(LIGHT, signer=SIGNER, forwarder=SIGNER, now=100.0)
    assert board.score(SIGNER, 100.0 + HALF_LIFE_SECONDS) == pytest.approx(-2.0)
    board.judge(LIGHT, signer=SIGNER, forwarder=SIGNER, now=100.0 + HALF_LIFE_SECONDS)
    assert board.score(SIGNER, 100.0 + 2 * HALF_LIFE_SECONDS) == pytest.approx(-3.0)


def test_a_forger_is_cut_off_and_an_honest_slip_is_not() -> None:
    board = Scoreboard()
    for _ in range(3):
        board.judge(HEAVY, signer=SIGNER, forwarder=FORWARDER, now=0.0)
    assert board.score(SIGNER, 0.0) < BAN_BELOW < board.score(FORWARDER, 0.0)


def test_it_remembers_a_bounded_number_of_peers() -> None:
    board = Scoreboard()
    for number in range(5000):
        board.judge(LIGHT, signer=None, forwarder=PeerId(f"peer-{number}"), now=0.0)
    assert len(board._scores) == 4096
    assert board.score(PeerId("peer-0"), 0.0) == 0.0
    assert board.score(PeerId("peer-4999"), 0.0) == -1.0


@given(
    st.lists(st.tuples(st.sampled_from(list(Reason)), st.floats(0, 1e5), st.integers(0, 2))),
    st.floats(0, 1e6),
)
@settings(deadline=None)
def test_nobody_ever_stands_above_zero(
    judgements: list[tuple[Reason, float, int]], later: float
) -> None:
    board = Scoreboard()
    for reason, now, peer in judgements:
        board.judge(verdict(reason), signer=PeerId(str(peer)), forwarder=FORWARDER, now=now)
    for peer in (*map(str, range(3)), FORWARDER):
        assert board.score(PeerId(peer), later) <= 0
