"""A peer's points: a cause costs its weight down to its limit, and points recover."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_p2p.reputation.scoring import BAN_BELOW, HALF_LIFE_SECONDS, WEIGHTS, Cause, Scoreboard
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, verdict

SIGNER, FORWARDER = PeerId("signer"), PeerId("forwarder")
LIGHT, HEAVY = verdict(Reason.BAD_COMPLETION), verdict(Reason.BAD_SIGNATURE)


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
    # A peer that sends its own message is not charged twice.
    alone = Scoreboard()
    alone.judge(judged, signer=SIGNER, forwarder=SIGNER, now=0.0)  # type: ignore[arg-type]
    assert alone.score(SIGNER, 0.0) == of_signer
    unknown = Scoreboard()
    unknown.judge(judged, signer=None, forwarder=FORWARDER, now=0.0)  # type: ignore[arg-type]
    assert unknown.score(FORWARDER, 0.0) == of_forwarder


def test_only_rejects_cost() -> None:
    for reason in Reason:
        board = Scoreboard()
        judged = verdict(reason)
        board.judge(judged, signer=SIGNER, forwarder=FORWARDER, now=0.0)
        assert (board.score(SIGNER, 0.0) < 0) == (judged.outcome is Outcome.REJECT), reason


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
    assert len(board) <= 4096
    assert board.score(PeerId("peer-4999"), 0.0) == -1.0


@given(
    st.lists(st.tuples(st.sampled_from(list(Reason)), st.floats(0, 1e5), st.integers(0, 2))),
    st.floats(0, 1e6),
)
def test_no_score_exceeds_zero(judgements: list[tuple[Reason, float, int]], later: float) -> None:
    board = Scoreboard()
    for reason, now, peer in judgements:
        board.judge(verdict(reason), signer=PeerId(str(peer)), forwarder=FORWARDER, now=now)
    for name in ("0", "1", "2", FORWARDER):
        assert board.score(PeerId(name), later) <= 0


def test_throwaway_names_do_not_push_out_a_record() -> None:
    board = Scoreboard()
    board.judge(HEAVY, signer=SIGNER, forwarder=SIGNER, now=0.0)
    for number in range(20_000):
        board.judge(LIGHT, signer=None, forwarder=PeerId(f"peer-{number}"), now=0.0)
    assert board.score(SIGNER, 0.0) == -20.0


def test_a_forwarder_answers_only_for_what_it_could_have_checked() -> None:
    board = Scoreboard()
    board.judge(verdict(Reason.EQUIVOCATION), signer=SIGNER, forwarder=FORWARDER, now=0.0)
    assert board.score(SIGNER, 0.0) == -4.0
    assert board.score(FORWARDER, 0.0) == 0.0


def test_a_cause_costs_its_weight_and_stops_at_its_limit() -> None:
    for cause in Cause:
        board = Scoreboard()
        board.charge(SIGNER, cause, 0.0)
        assert board.row(SIGNER, 0.0).points == {cause: WEIGHTS[cause].points}
        for _ in range(200):
            board.charge(SIGNER, cause, 0.0)
        assert board.row(SIGNER, 0.0).points == {cause: WEIGHTS[cause].limit}
        assert board.score(SIGNER, 0.0) == min(0.0, WEIGHTS[cause].limit)


def test_what_an_honest_peer_in_trouble_does_can_never_ban_even_all_together() -> None:
    board = Scoreboard()
    for cause in (Cause.CLOCK, Cause.BROKEN_PROMISE, Cause.SLOW_READER):
        for _ in range(1000):
            board.charge(SIGNER, cause, 0.0)
    assert board.score(SIGNER, 0.0) > BAN_BELOW


@pytest.mark.parametrize("reason", [Reason.FAR_FUTURE, Reason.UNFETCHABLE])
def test_faults_explained_by_our_clock_or_bad_luck_ban_no_peer(reason: Reason) -> None:
    board = Scoreboard()
    for _ in range(1000):
        judged = verdict(reason)
        board.judge(judged, signer=SIGNER, forwarder=FORWARDER, now=0.0)
    assert board.score(SIGNER, 0.0) > BAN_BELOW
    assert board.score(FORWARDER, 0.0) > BAN_BELOW


def test_credit_is_small_slow_pays_nothing_and_ends_with_a_penalty() -> None:
    board = Scoreboard()
    accepted = verdict(Reason.VALID)
    for _ in range(1000):
        board.judge(accepted, signer=SIGNER, forwarder=FORWARDER, now=0.0)
    assert board.row(FORWARDER, 0.0).credit == 0.05, "a flood of valid messages earns like one"
    for second in range(1000):
        board.judge(accepted, signer=SIGNER, forwarder=FORWARDER, now=float(second))
    earned = board.row(FORWARDER, 1000.0).credit
    assert 1.0 < earned <= WEIGHTS[Cause.FIRST_DELIVERY].limit
    assert board.score(FORWARDER, 1000.0) == 0.0
    assert board.row(SIGNER, 1000.0).credit == 0.0, "only the deliverer is credited"
    board.judge(LIGHT, signer=FORWARDER, forwarder=FORWARDER, now=1000.0)
    assert board.score(FORWARDER, 1000.0) == -4.0
    assert board.row(FORWARDER, 1000.0).credit == 0.0
    board.judge(accepted, signer=SIGNER, forwarder=FORWARDER, now=1001.0)
    assert board.score(FORWARDER, 1000.0) == pytest.approx(-4.0, abs=0.01)


def test_credit_halves_in_an_hour() -> None:
    board = Scoreboard()
    board.judge(verdict(Reason.VALID), signer=SIGNER, forwarder=FORWARDER, now=0.0)
    assert board.row(FORWARDER, 3600.0).credit == pytest.approx(0.025)
