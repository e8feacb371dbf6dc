"""Training statistics: what moved the weights, by publisher, counted once per round."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from shoal_ipc import messages as m
from shoal_ipc.answers.form import to_json
from shoal_ipc.answers.learning import LastHour, PublisherStats
from shoal_lab.simulation.parts import at_once
from shoal_p2p.disk import KeptState
from shoal_p2p.rollouts.ledger_file import LEDGER, keep_ledger, left_in
from shoal_p2p.rollouts.network_shares import MAX_TRACKED, WINDOW_MINUTES
from shoal_p2p.rollouts.training_stats import (
    FAMILY_GROUPS,
    TrainingStats,
)
from shoal_p2p.state_file import STATE_FILE, read_state, write_state
from shoal_wire.types import GroupId, PeerId

ME, ANN, BEN = PeerId("me"), PeerId("ann"), PeerId("ben")
NOW_MS = 1_800_000_000_000
MINUTE = 60_000


def group(by: PeerId = ANN, signal: float = 2.0, why: str = "", **other: object) -> m.GroupOutcome:
    given: dict[str, Any] = {"model": "tiny", "family": "gcd", "reward": 0.5, "tokens": 10, **other}
    return m.GroupOutcome(
        group_id=GroupId(b""), publisher=by, signal=signal, skip_reason=why, **given
    )


OWN = PeerId("")


def row(ledger: TrainingStats, peer_id: PeerId, now_ms: int = NOW_MS) -> PublisherStats:
    return next(one for one in ledger.publishers(now_ms) if one.peer_id == peer_id)


def test_signal_is_what_was_trained_on() -> None:
    ledger = TrainingStats(ME)
    ledger.take(1, [group(), group(signal=0.0, why="no_reward"), group(OWN, 1.0)], now_ms=NOW_MS)
    assert [one.peer_id for one in ledger.publishers(NOW_MS)] == [ANN, ME]
    ann = row(ledger, ANN, NOW_MS + 1500)
    assert (ann.groups_seen, ann.groups_trained, ann.signal) == (2, 1, 2.0)
    assert (ann.model, ann.reward, ann.last_trained_s) == ("tiny", 0.5, 1.5)
    assert row(ledger, ME).is_local is True
    assert replace(ledger.last_hour(NOW_MS), window_s=0) == LastHour(
        external_signal_share=round(2 / 3, 4),
        groups_local=1,
        groups_external=1,
        tokens_external=10,
    )


def test_recent_means_one_hour() -> None:
    ledger = TrainingStats(ME)
    ledger.take(1, [group(), group()], now_ms=NOW_MS)
    ledger.take(2, [group()], now_ms=NOW_MS + 20 * MINUTE)
    assert row(ledger, ANN).groups_trained == 3
    assert ledger.last_hour(NOW_MS + 25 * MINUTE).groups_external == 3
    assert ledger.last_hour(NOW_MS + 65 * MINUTE).groups_external == 1
    assert ledger.last_hour(NOW_MS + 3 * 60 * MINUTE).external_signal_share is None


@given(st.integers(0, 2 * MINUTE), st.integers(0, 3 * MINUTE))
def test_recent_counts_begin_with_the_first_round(begun_ms: int, later_ms: int) -> None:
    """Whole minutes are counted, and the first of them had begun before the run."""
    ledger, first_ms = TrainingStats(ME), NOW_MS + begun_ms
    ledger.take(1, [group()], now_ms=first_ms)
    now_ms = first_ms + later_ms
    ledger.take(2, [group()], now_ms=now_ms)
    assert ledger.last_hour(now_ms).window_s == later_ms // 1000
    assert TrainingStats.from_json(ledger.to_json()).last_hour(now_ms) == ledger.last_hour(now_ms)


def test_a_round_that_is_played_again_counts_once() -> None:
    ledger = TrainingStats(ME)
    for number in range(1, 6):
        ledger.take(number, [group(), group(BEN, 1.0)], now_ms=NOW_MS)
    ledger.take(3, [group(signal=7.0)], now_ms=NOW_MS)  # killed after 2 was saved
    assert (row(ledger, ANN).groups_trained, row(ledger, ANN).signal) == (3, 11.0)
    assert (row(ledger, BEN).groups_trained, row(ledger, BEN).signal) == (2, 2.0)
    assert ledger.round == 3


def test_the_first_round_resets_the_counts() -> None:
    ledger = TrainingStats(ME)
    ledger.take(1, [group(), group(OWN)], now_ms=NOW_MS)
    ledger.take(1, [group(BEN)], now_ms=NOW_MS)
    assert [one.peer_id for one in ledger.publishers(NOW_MS)] == [BEN]
    assert ledger.families() == ()


def test_families_show_local_rewards_at_first_and_recently() -> None:
    ledger = TrainingStats(ME)
    for number in range(1, 201):
        reward = number / 200
        ledger.take(number, [group(OWN, reward=reward), group(reward=0.0)], now_ms=NOW_MS)
    (family,) = ledger.families()
    assert (family.name, family.groups) == ("gcd", 200)
    assert family.reward_initial == pytest.approx((1 + FAMILY_GROUPS) / 400, abs=1e-4)
    assert family.reward == pytest.approx((401 - FAMILY_GROUPS) / 400, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_trainer_tells_it_stays_within_its_bounds(seed: int) -> None:
    rng = random.Random(seed)
    ledger, number, now_ms = TrainingStats(ME), 1, NOW_MS
    odd = (float("nan"), float("inf"), -1.0, 1e300)
    for _ in range(400):
        number = rng.choice([number + 1, number + 1, number + 1, max(1, number - rng.randrange(9))])
        now_ms += rng.choice([0, 1000, MINUTE, -MINUTE])
        trained = [
            group(
                PeerId(f"p{rng.randrange(2000)}"),
                rng.choice([*odd, rng.random()]),
                rng.choice(["", "", "copy"]),
                family=f"f{rng.randrange(500)}",
                reward=rng.choice([*odd, rng.random()]),
                model="x" * rng.choice([1, 5000]),
            )
            for _ in range(rng.randrange(12))
        ]
        trained.append(group(OWN, family=f"f{rng.randrange(500)}"))
        ledger.take(number, trained, now_ms=now_ms)
    rows = ledger.publishers(now_ms)
    assert len(rows) <= MAX_TRACKED
    assert len(ledger.families()) <= MAX_TRACKED
    assert all(len(one.minutes) <= WINDOW_MINUTES for one in ledger._rows.values())
    json.dumps(to_json(ledger.view(now_ms)), allow_nan=False)
    assert len(ledger.to_json()) < 4 * 1024 * 1024
    again = TrainingStats(ME)
    again.restore(ledger.to_json())
    assert again.publishers(now_ms) == rows
    assert again.families() == ledger.families()
    assert again.last_hour(now_ms) == ledger.last_hour(now_ms)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"form": 2}', '{"form": 1, "round": 1, "publishers": [[1]]}',
             '{"form": 1, "round": 1, "publishers": [], "families": [["a", 1, [1e999], []]]}'],
)  # fmt: skip
def test_a_damaged_file_is_refused_whole(text: str) -> None:
    ledger = TrainingStats(ME)
    ledger.take(5, [group()], now_ms=NOW_MS)
    with pytest.raises(ValueError):
        ledger.restore(text)
    assert row(ledger, ANN).groups_trained == 1


def test_what_is_left_is_what_there_was(tmp_path: Path) -> None:
    """Statistics read from disk equal those of the node's last training."""
    rng, tried = random.Random(7), 0
    for case in range(40):
        ledger, now_ms = TrainingStats(ME), NOW_MS
        for number in range(1, rng.randint(1, 30)):
            now_ms += rng.choice([1000, MINUTE, 20 * MINUTE, 300 * MINUTE])
            who = [rng.choice([ANN, BEN, OWN]) for _ in range(rng.randint(1, 4))]
            trained = [group(by, rng.random(), rng.choice(["", "copy"])) for by in who]
            ledger.take(number, trained, now_ms=now_ms)
        (folder := tmp_path / str(case)).mkdir()
        write_state(folder / STATE_FILE, LEDGER, ledger.to_json().encode())
        assert left_in(folder) == ledger.view(ledger.last_ms)
        tried += 1
    assert tried == 40


def test_a_ledger_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert left_in(tmp_path) is None
    write_state(tmp_path / STATE_FILE, LEDGER, b"\xff" + b"[" * 100_000)
    assert left_in(tmp_path) is None


async def test_a_round_is_on_disk_within_twenty_seconds_and_there_after_a_restart(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    ledger, again = TrainingStats(ME), TrainingStats(ME)
    async with trio.open_nursery() as nursery:
        file = KeptState(tmp_path / STATE_FILE, LEDGER, in_thread=at_once)
        await nursery.start(keep_ledger, ledger, file)
        await trio.sleep(1)
        ledger.take(1, [group()], now_ms=NOW_MS)
        await trio.sleep(20)
        kept = TrainingStats(ME)
        kept.restore((read_state(tmp_path / STATE_FILE, LEDGER) or b"").decode())
        assert kept.round == 1
        ledger.take(2, [group()], now_ms=NOW_MS)
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        await nursery.start(
            keep_ledger, again, KeptState(tmp_path / STATE_FILE, LEDGER, in_thread=at_once)
        )
        nursery.cancel_scope.cancel()
    assert (again.round, row(again, ANN).groups_trained) == (2, 2)
