"""Training methods of experiments only: their groups and their weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_lab.experiment.plan import NodeSpec
from shoal_lab.experiment.run import learners
from shoal_lab.experiment.run.in_process import Workers
from shoal_lab.experiment.run.learners import (
    DROPPED,
    LEARNERS,
    MOST,
    capability_ratio,
    weight_of,
)
from shoal_policy.update.rows import TrainGroup
from tests.lab.experiment.jobs import arm_of, job, lines_of

CAPABLE = st.lists(st.floats(0, 1), max_size=5)


def played(shared: Workers, nodes: int, learner: str, **settings: Any) -> list[dict[str, Any]]:
    arm = arm_of(*[NodeSpec(settings=settings, learner=learner)] * nodes)
    return lines_of(job(arm, rounds=6, eval_every=6, eval_per_family=8), shared)


def test_a_node_that_trains_on_right_answers_generates_nothing_and_learns(shared: Workers) -> None:
    lines = played(shared, 1, "answers", local=12, external=0)
    rounds = [line for line in lines if line["event"] == "round"]
    assert {line["tokens_generated"] for line in rounds} == {0}
    first, last = (line["held_out/pass@1"] for line in lines if line["event"] == "held_out")
    assert last > first + 0.15


def test_others_answers_are_weighed_by_own_likelihood(
    shared: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every external group is weighted, and no local one is."""
    seen: list[tuple[list[float], list[float]]] = []
    weighed = learners.Hacpo._weighed

    def noted(self: Any, group: Any, made: TrainGroup, temperature: float) -> TrainGroup:
        found = weighed(self, group, made, temperature)
        assert group.external
        seen.append((list(made.advantages), list(found.advantages)))
        return found

    monkeypatch.setattr(learners.Hacpo, "_weighed", noted)
    lines = played(shared, 2, "hacpo", local=2, external=2, strategy="uniform")
    external = sum(line["groups_external"] for line in lines if line["event"] == "round")
    assert len(seen) == external > 0
    assert all(len(before) == len(after) for before, after in seen)
    assert any(
        abs(a) < abs(b) for before, after in seen for a, b in zip(after, before, strict=True)
    )


def test_all_learners_play_the_rounds_of_a_plan() -> None:
    assert set(LEARNERS) == {"answers", "hacpo"}
    spec = NodeSpec(learner="hacpo")
    assert spec.to_json()["learner"] == "hacpo"
    assert "learner" not in NodeSpec().to_json()


@given(st.floats(-60, 60))
def test_a_weight_is_at_most_one_and_falls_with_the_likelihood(nats: float) -> None:
    weight = weight_of(nats)
    assert weight == (1.0 if nats >= 0 else weight)
    assert (weight == 0) == (math.exp(min(0.0, nats)) < DROPPED)
    assert weight_of(nats - 1) <= weight <= 1


@given(CAPABLE, CAPABLE)
def test_a_ratio_of_capabilities_is_bounded(own: list[float], theirs: list[float]) -> None:
    assert 1 / MOST <= capability_ratio(own, theirs) <= MOST


def test_who_is_abler_has_a_ratio_below_one() -> None:
    assert capability_ratio([0.2], [0.4]) == 0.5
    assert capability_ratio([0.3], [0.2]) == pytest.approx(1.5)
    assert capability_ratio([0.3], [0.3]) == 1.0
