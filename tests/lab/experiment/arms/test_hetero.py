"""`shoal experiment hetero`: nodes that differ, and their comparisons."""

from __future__ import annotations

from typing import Any

import pytest

from shoal_lab.experiment.arms.hetero import all_arms
from shoal_lab.experiment.plan import NodeSpec
from shoal_lab.experiment.run.in_process import Workers
from shoal_lab.experiment.run.tasks import SpecialistSource
from tests.lab.experiment.jobs import arm_of, job, lines_of

SHARING = {"local": 2, "external": 2}


@pytest.mark.slow
def test_slow_and_late_nodes_play_fewer_rounds_and_hear_the_others(shared: Workers) -> None:
    steady = NodeSpec(settings=SHARING)
    slow, late = NodeSpec(settings=SHARING, every=3), NodeSpec(settings=SHARING, late=0.5)
    lines = lines_of(job(arm_of(steady, slow, late), rounds=4), shared)
    numbers = {node: [o["round"] for o in lines if o["node"] == node] for node in range(3)}
    assert numbers == {0: [1, 2, 3, 4], 1: [3], 2: [3, 4]}
    assert sum(line["external_sampled"] for line in lines if line["node"] == 2) > 0


@pytest.mark.slow
def test_a_specialist_asks_of_its_own_families_only(shared: Workers) -> None:
    requests: list[str] = []

    class RecordingSource(SpecialistSource):
        def draw(self, rng: Any, count: int) -> Any:
            drawn = super().draw(rng, count)
            requests.extend(question.task.family for question in drawn)
            assert len(drawn) == count
            return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal_lab.experiment.run.in_process.SpecialistSource", RecordingSource)
        specialist = NodeSpec(settings=SHARING, families=("gcd_easy",))
        lines_of(job(arm_of(specialist, NodeSpec(settings=SHARING)), rounds=4), shared)
    assert set(requests) == {"gcd_easy"}
    assert len(requests) == 8


def test_every_difference_has_its_arm() -> None:
    arms = {arm.name: arm for arm in all_arms(8)}
    assert all(len(arm.nodes) == 8 for arm in arms.values())
    assert {node.settings.get("completions") for node in arms["L 4/4"].nodes} == {4, 8, 16}
    assert len({node.families for node in arms["specialists 4/4"].nodes}) == 6
    assert [node.role for node in arms["slow and late 4/4"].nodes].count("slow") == 2
