"""Whatever attackers send, in any order, honest nodes keep their peers, groups and limits.

Whole nodes with the real gossip and the real request server over byte streams in memory, in virtual
time (`tests/support/streamed_host.py`). Four attackers use a grammar of all messages
(`schedule.ACTS`). The invariants are in `attack_run`. SHOAL_SIM_SEED=123 plays one schedule, and
SHOAL_REDTEAM_SCHEDULES is the number of schedules in the slow test. `python -m tests.redteam 123`
plays one and, if it fails, reduces it to the steps that are needed.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from shoal_p2p.gossip.duplicate_tracker import DuplicateTracker
from tests.redteam.attack_run import play
from tests.redteam.schedule import ACTS, Schedule, Step, minimal_steps, schedule_of

SEED = os.environ.get("SHOAL_SIM_SEED")
NUM_LONG = int(os.environ.get("SHOAL_REDTEAM_SCHEDULES", "200"))


@pytest.mark.parametrize(
    "seed", [int(SEED)] if SEED else [3064, pytest.param(3175, marks=pytest.mark.slow)]
)
def test_no_schedule_harms_honest_nodes(seed: int) -> None:
    run = play(schedule_of(seed))
    assert sum(run.done.values()) > len(run.schedule.steps) // 2, "little was tried"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_schedule_of_many_harms_honest_nodes() -> None:
    done: set[str] = set()
    for seed in range(NUM_LONG):
        done |= play(schedule_of(seed)).done.keys()
    assert done == ACTS.keys()


def test_a_bootstrap_of_another_swarm_moves_no_restarted_node() -> None:
    steps = tuple(Step(at=2.0 + 4 * n, who=n % 2, act="another_manifest", seed=n) for n in range(3))
    done = play(Schedule(seed=1, honest=3, one_network=False, steps=steps)).done
    assert done["another_manifest"] == 3


def test_who_blames_forwarders_for_copies_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that once let one attacker split a whole swarm."""
    monkeypatch.setattr(DuplicateTracker, "on_copy", lambda *_: 10.0)
    steps = tuple(Step(at=1.0 + n, who=n, act="batches", seed=n) for n in range(3))
    blamed = pytest.RaisesExc(AssertionError, match="blames")
    with pytest.RaisesGroup(blamed, flatten_subgroups=True):
        play(Schedule(seed=1, honest=3, one_network=False, steps=steps))


def test_a_schedule_is_one_by_its_seed_and_stays_so_when_cut() -> None:
    assert schedule_of(5) == schedule_of(5) != schedule_of(6)
    whole = schedule_of(5)
    assert set(replace(whole, steps=whole.steps[::2]).steps) < set(whole.steps)


def test_the_least_steps_are_found() -> None:
    steps = schedule_of(5).steps
    needed = {steps[2], steps[9]}
    assert set(minimal_steps(steps, lambda some: needed <= set(some))) == needed
