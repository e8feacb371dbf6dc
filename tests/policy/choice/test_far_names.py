"""One machine hides behind a node's neighbours, under any number of names, and gains nothing.

SHOAL_SCENES=1 pytest -s tests/policy/choice/test_far_names.py    prints what each scene gave
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from shoal_policy.choice.strategy import ExternalStrategy
from tests.support.far_swarm import DEFAULT, FarSwarm, Scene

FREE = replace(DEFAULT, has_ceilings=False)
"""The same choice without ceilings."""
ROUNDS, SEED = 60, 1
MOST = 0.2
"""The most that one machine may give."""


def played(scene: Scene, strategy: ExternalStrategy = DEFAULT, *, rounds: int = ROUNDS) -> FarSwarm:
    swarm = FarSwarm(scene, SEED, strategy).play(rounds)
    if "SHOAL_SCENES" in os.environ:
        gave = " ".join(f"{kind} {swarm.share(kind):.2f}" for kind in swarm.signal)
        print(f"\n{scene}: {gave} of {swarm.total:.0f}")
    return swarm


HIDDEN = {
    "behind all of eight": Scene(),
    "without distant ones": Scene(far=0),
    "behind three": Scene(far=0, behind=3),
    "behind one": Scene(far=0, behind=1),
    "twenty names": Scene(names=20),
    "one name": Scene(names=1, far=0),
    "ten times the groups": Scene(groups=200, far=0),
    "a swarm of four": Scene(near=3, behind=3, far=0, groups=60),
    "distant ones never met": Scene(is_connected=False),
    "connected": Scene(behind=0, far=0),
}
QUICK = ("behind all of eight", "one name", "a swarm of four")


@pytest.mark.parametrize("useful", [0.1, pytest.param(0.5, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(scene, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, scene in HIDDEN.items()
    ],
)
def test_one_machine_gives_at_most_a_fifth(scene: Scene, useful: float) -> None:
    assert played(replace(scene, useful=useful)).share("machine") <= MOST


@pytest.mark.parametrize("useful", [0.1, pytest.param(0.5, marks=pytest.mark.slow)])
def test_honest_publishers_near_or_distant_lose_nothing_by_it(useful: float) -> None:
    """The numbers are those of the choice by forwarders, which this one replaced."""
    before = {0.1: (1389.0, 903.0), 0.5: (1469.0, 737.0)}[useful]
    swarm = played(Scene(names=0, useful=useful))
    assert swarm.total >= 0.97 * before[0]
    assert swarm.signal["far"] >= 0.8 * before[1]


@pytest.mark.parametrize("far", [0, pytest.param(40, marks=pytest.mark.slow)])
def test_ceilings_hardly_cost_honest_publishers_anything(far: int) -> None:
    scene = Scene(names=0, useful=0.1, far=far)
    assert played(scene).total >= 0.95 * played(scene, FREE).total


def test_a_node_connected_to_no_publisher_trains_on_forwarded_groups() -> None:
    """As one behind a bootstrap alone, where `near` names who forwards and publishes nothing."""
    scene = Scene(near=1, far=8, is_connected=False, names=0, near_publish=False)
    assert played(scene, rounds=30).total > 0.9 * played(Scene(far=0, names=0), rounds=30).total
