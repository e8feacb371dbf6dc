"""Ways of learning that are no node's: what they train on, and by how much."""

from __future__ import annotations

from typing import Any

from shoal_lab.experiment.plan import Arm, Job, NodeSpec
from shoal_lab.experiment.playing.in_process import Workers, play

BASE = {"model": "tiny", "device": "cpu", "completions": 4, "eval_every": 6, "eval_per_family": 8}


def played(shared: Workers, nodes: int, learner: str, **settings: Any) -> list[dict[str, Any]]:
    arm = Arm(name=learner, nodes=(NodeSpec(settings=settings, learner=learner),) * nodes)
    lines: list[dict[str, Any]] = []
    play(Job(arm=arm, seed=1, rounds=6, base=BASE), shared, lines.append)
    return lines


def test_a_node_that_trains_on_right_answers_generates_nothing_and_learns(shared: Workers) -> None:
    lines = played(shared, 1, "answers", local=12, external=0)
    rounds = [line for line in lines if line["event"] == "round"]
    assert {line["tokens_generated"] for line in rounds} == {0}
    first, last = (line["held_out/pass@1"] for line in lines if line["event"] == "held_out")
    assert last > first + 0.15
