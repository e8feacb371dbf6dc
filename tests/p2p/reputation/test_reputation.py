"""`Reputation`: bans that double and expire, the user's lists, and restarts."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal_p2p.disk import read_kept
from shoal_p2p.reputation.peer_manager import REPUTATION
from shoal_p2p.reputation.reputation import (
    BAN_SECONDS,
    MAX_BAN_SECONDS,
    MAX_LISTED,
    ListFullError,
    Reputation,
)
from shoal_p2p.reputation.scoring import Cause
from shoal_p2p.state_file import read_state, write_state
from shoal_wire.types import GroupId, PeerId
from shoal_wire.verdict import Reason, verdict

ME, ANN, BOB, EVE = map(PeerId, ("me", "ann", "bob", "eve"))
HOUR_MS = 3_600_000


def misbehave(reputation: Reputation, peer: PeerId, now: float) -> None:
    for _ in range(3):
        reputation.board.charge(peer, Cause.SIGNED_HEAVY, now)


def report_groups(
    reputation: Reputation, *, useful: Sequence[PeerId], useless: Sequence[PeerId], now: float
) -> None:
    """Report sixty groups of each of these."""
    for number, peer in itertools.product(range(60), (*useful, *useless)):
        reputation.sampling.report(
            GroupId(f"{peer}{number}".encode()),
            publisher=peer,
            family="sums",
            rewards=(0.0, 1.0 if peer in useful else 0.0),
            own=peer == ME,
            now=now,
        )


def again(reputation: Reputation, *, now: float, later_ms: int = 0) -> Reputation:
    """The reputation after a restart `later_ms` of wall clock later."""
    fresh = Reputation()
    fresh.restore(reputation.to_json(now, wall_ms=1_000_000), 5.0, wall_ms=1_000_000 + later_ms)
    return fresh


def test_a_ban_is_pronounced_once_ends_and_doubles() -> None:
    reputation = Reputation()
    assert reputation.ban_due(EVE, 0.0) is None
    misbehave(reputation, EVE, 0.0)
    assert reputation.ban_due(EVE, 0.0) == BAN_SECONDS
    assert reputation.ban_due(EVE, 1.0) is None, "it lasts already"
    assert reputation.banned_for(EVE, BAN_SECONDS + 1) is None
    assert reputation.ban_due(EVE, BAN_SECONDS + 1) is None, "half of the points are back"
    lengths = []
    now = BAN_SECONDS + 1
    for _ in range(8):
        misbehave(reputation, EVE, now)
        lengths.append(reputation.ban_due(EVE, now))
        now += (lengths[-1] or 0.0) + 1
    assert lengths[:3] == [2 * BAN_SECONDS, 4 * BAN_SECONDS, 8 * BAN_SECONDS]
    assert lengths[-1] == MAX_BAN_SECONDS


def test_a_protected_peer_is_never_banned_and_its_points_cost_it_nothing() -> None:
    reputation = Reputation(always_protected=[ANN])
    reputation.protect(BOB)
    for peer in (ANN, BOB):
        misbehave(reputation, peer, 0.0)
        assert reputation.ban_due(peer, 0.0) is None
        assert reputation.score(peer, 0.0) == 0.0
        assert reputation.row(peer, 0.0).score == -60.0, "but they are shown"
    reputation.unprotect(BOB)
    assert reputation.ban_due(BOB, 0.0) == BAN_SECONDS
    reputation.unprotect(ANN)
    assert reputation.is_protected(ANN), "a bootstrap of the user's settings stays"


def test_blocking_and_protecting_exclude_each_other() -> None:
    reputation = Reputation()
    reputation.protect(EVE)
    reputation.block(EVE)
    assert (reputation.is_blocked(EVE), reputation.is_protected(EVE)) == (True, False)
    assert [reputation.sampling_weight(peer, 0.0) for peer in (EVE, ANN)] == [0.0, 1.0]
    reputation.protect(EVE)
    assert (reputation.is_blocked(EVE), reputation.is_protected(EVE)) == (False, True)


def test_unblocking_lifts_a_ban_and_what_led_to_it() -> None:
    reputation = Reputation()
    misbehave(reputation, EVE, 0.0)
    reputation.ban_due(EVE, 0.0)
    reputation.unblock(EVE)
    assert reputation.banned_for(EVE, 0.0) is None
    assert reputation.ban_due(EVE, 0.0) is None


def test_the_users_lists_are_bounded() -> None:
    reputation = Reputation()
    for number in range(MAX_LISTED):
        reputation.block(PeerId(f"peer-{number}"))
    with pytest.raises(ListFullError):
        reputation.block(EVE)
    reputation.block(PeerId("peer-0"))


def test_bans_are_bounded_and_the_soonest_to_end_goes_first() -> None:
    reputation = Reputation()
    for number in range(MAX_LISTED + 10):
        misbehave(reputation, PeerId(f"peer-{number}"), float(number))
        assert reputation.ban_due(PeerId(f"peer-{number}"), float(number))
    assert len(reputation.banned(float(MAX_LISTED))) <= MAX_LISTED


def test_useful_peers_rank_above_idle_ones_and_useless_ones_do_not() -> None:
    reputation = Reputation()
    for second in range(100):
        for peer in (ANN, EVE):
            reputation.board.judge(
                verdict(Reason.VALID), signer=peer, forwarder=peer, now=float(second)
            )
    report_groups(reputation, useful=(ME, ANN), useless=(EVE,), now=100.0)
    ann, bob, eve = (reputation.rank(peer, 100.0) for peer in (ANN, BOB, EVE))
    assert ann > 1.0 > eve >= bob == 0.0
    assert eve < 0.1, "flooding with garbage earns no rank"


def test_points_bans_and_the_users_word_survive_a_restart() -> None:
    reputation = Reputation()
    misbehave(reputation, EVE, 0.0)
    reputation.ban_due(EVE, 0.0)
    reputation.board.charge(ANN, Cause.SIGNED_REJECT, 0.0)
    reputation.block(BOB)
    reputation.protect(PeerId("friend"))
    soon = again(reputation, now=0.0, later_ms=60_000)
    assert soon.banned_for(EVE, 5.0) == pytest.approx(BAN_SECONDS - 60)
    assert soon.is_blocked(BOB)
    assert soon.is_protected(PeerId("friend"))
    assert -4.0 < soon.score(ANN, 5.0) < -3.5
    later = again(reputation, now=0.0, later_ms=2 * HOUR_MS)
    assert later.banned_for(EVE, 5.0) is None
    misbehave(later, EVE, 5.0)
    assert later.ban_due(EVE, 5.0) == 2 * BAN_SECONDS, "the earlier ban is remembered"


def test_a_clock_that_went_back_keeps_a_ban_no_longer_than_it_was() -> None:
    reputation = Reputation()
    misbehave(reputation, EVE, 0.0)
    reputation.ban_due(EVE, 0.0)
    back = again(reputation, now=0.0, later_ms=-HOUR_MS)
    assert back.banned_for(EVE, 5.0) == BAN_SECONDS


_SAVED = b'{"version": 1, "saved_ms": %s, "blocked": %s, "protected": [], "peers": %s}'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"version": 1}',
        b'{"version": 2, "peers": []}',
        b"\xff\xfe",
        b"[" * 100_000,
        _SAVED % (b"0", b"[]", b"[7]"),
        _SAVED % (b"0", b"[]", b'[{"peer_id": "x", "groups": "many"}]'),
        _SAVED % (b"NaN", b"[]", b"[]"),
        _SAVED % (b"0", b'"all"', b"[]"),
    ],
)
def test_a_corrupt_file_is_named_set_aside_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = tmp_path / "peer.db"
    write_state(path, REPUTATION, content)
    reputation = Reputation()
    with caplog.at_level(logging.WARNING):
        read_kept(path, REPUTATION, lambda text: reputation.restore(text, 0.0, wall_ms=0))
    assert str(path) in caplog.text
    assert read_state(path, REPUTATION) is None
    assert read_state(path, f"{REPUTATION}.corrupt") == content
    assert reputation.rows(0.0) == ()


def test_values_out_of_range_in_a_file_are_cut() -> None:
    row: dict[str, Any] = {"peer_id": "eve"}
    row["points"] = {"flood": -1e9, "nonsense": -5, "first_delivery": 1e9}
    row |= {"useful": 1e9, "groups": 3.0, "ban_s": 1e12, "bans": 2}
    content = {"version": 1, "saved_ms": 0, "blocked": [], "protected": [], "peers": [row]}
    reputation = Reputation()
    reputation.restore(json.dumps(content), 0.0, wall_ms=0)
    held = reputation.row(EVE, 0.0)
    assert (held.points, held.score, held.merit) == ({Cause.FLOOD: -100.0}, -100.0, 5.0)
    assert reputation.banned_for(EVE, 0.0) == MAX_BAN_SECONDS


def test_the_signal_of_groups_survives_a_restart() -> None:
    reputation = Reputation()
    report_groups(reputation, useful=(ME,), useless=(EVE,), now=0.0)
    before = reputation.sampling_weight(EVE, 0.0)
    assert before < 0.05
    saved = reputation.to_json(0.0, wall_ms=0)
    again = Reputation()
    again.restore(saved, 0.0, wall_ms=0)
    assert again.sampling_weight(EVE, 0.0) == pytest.approx(before, rel=0.01)
