"""How far an arm comes towards one trainer with all the data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal_lab.experiment.reading.ceiling import ceiling, markdown
from shoal_lab.experiment.reading.results import Run
from tests.lab.experiment.synthetic_runs import run

CENTRAL = "24/0 nodes=1"
SILOS = [run("8/0", 1, 0.2), run("8/0", 2, 0.2)]
SHARING = [run("4/4 nodes=6", 1, 0.3, nodes=6), run("4/4 nodes=6", 2, 0.5, nodes=6)]


def central(seed: int, level: float) -> Run:
    return replace(run(CENTRAL, seed, level, nodes=1), questions=24.0)


def test_an_arm_stands_between_the_silo_and_all_the_data() -> None:
    found = ceiling([*SILOS, *SHARING, central(1, 0.6), central(2, 0.6)])
    assert found is not None
    assert found.arm == CENTRAL
    (way,) = found.ways
    assert way.arm == "4/4 nodes=6"
    assert way.total is not None
    assert way.heldout is not None
    assert way.total.mean == way.heldout.mean == pytest.approx(0.5)  # .25 and .75 of the way
    assert (way.total.half or 0.0) > 0.5, "two seeds say little"
    assert way.total.units == 2
    assert found.to_json()["ceiling"]["total"]["4/4 nodes=6"]["mean"] == 0.5
    assert "| 4/4 nodes=6 | 50% ± " in markdown(found)


def test_a_seed_whose_way_is_short_does_not_rule_the_interval() -> None:
    near = ceiling([*SILOS, *SHARING, central(1, 0.6), central(2, 0.2001)])
    assert near is not None
    way = near.ways[0].total
    assert way is not None
    assert way.mean == pytest.approx(1.0, rel=0.01)
    assert way.sd < 3.0, "by shares of seeds: a thousand"


def test_a_ceiling_below_the_silo_is_none() -> None:
    found = ceiling([*SILOS, *SHARING, central(1, 0.2), central(2, 0.1)])
    assert found is not None
    assert found.ways[0].total is None
    assert "| 4/4 nodes=6 | – | – |" in markdown(found)
    assert found.to_json()["ceiling"]["total"] == {}


def test_a_silo_of_one_node_and_a_swarm_that_asks_more_are_no_ceiling() -> None:
    alone = run("8/0 nodes=1", 1, 0.2, nodes=1)
    filtered = replace(run("8/0 filtered", 1, 0.5), questions=16.0)
    assert ceiling([SILOS[0], alone, filtered]) is None
    assert ceiling([central(1, 0.6)]) is None, "no silo"
