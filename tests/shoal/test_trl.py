"""TRL's trainer in a swarm: next to one of our nodes, with external groups."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.api.swarm import Swarm
from shoal.trl import STATE_FILE, Rollouts, _with_signal
from shoal_policy.choice.advantage import group_advantages, has_signal
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.model.prompting import encode_completion, encode_prompt
from shoal_policy.model.retokenized import Retokenized
from shoal_policy.tiny.tokenizer import ANSWER, BOS
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, update
from shoal_tasks.wire_tasks import coordinates_of
from shoal_wire.types import FinishReason, RolloutGroup
from tests.policy import training_cases as case
from tests.support import factories as make
from tests.support.local_node import NodeThread
from tests.support.processes import LOOPBACK, ProcessManager, wait_for

SIZE, STEPS = 4, 4
PAGE = Path(__file__).resolve().parents[2] / "docs/python-api.md"


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=9).filter(has_signal)
)
def test_of_a_larger_group_rows_are_taken_that_teach(rewards: list[float]) -> None:
    read = [(Retokenized(ids=(n,), unscored_mask=None), reward) for n, reward in enumerate(rewards)]
    chosen = _with_signal(read, SIZE)
    assert len(chosen) == min(SIZE, len(read))
    assert has_signal([reward for _, reward in chosen])
    assert len({reading.ids for reading, _ in chosen}) == len(chosen)


@pytest.mark.parametrize("module", ["trl", "trl_async"])
def test_the_page_s_example_is_short(module: str) -> None:
    example = re.search(rf"```python\n(import shoal\.{module}\b.*?)```", PAGE.read_text(), re.S)
    assert example is not None
    assert len([line for line in example[1].splitlines() if line.strip()]) <= 15


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trl_trains_with_a_node(stage: ProcessManager, tmp_path: Path) -> None:
    node = stage.node(
        "one", "--model", "tiny", "--local", "4", "--completions", "6", "--round-seconds", "0.2"
    )
    flags = ["--listen", LOOPBACK, "--no-mdns", f"--bootstrap={node.address}"]
    with shoal.connect(tmp_path / "two", node_flags=flags) as swarm:
        wait_for(lambda: swarm.status()["groups_received"] >= 40, 90.0, "groups of the node")
        joined = Rollouts(
            swarm, prompt=lambda question: f"{BOS}{question.text}{ANSWER}", author="by-trl"
        )
        trainer = _trainer(joined, tmp_path / "out")
        before = [one.detach().clone() for one in trainer.model.parameters()]
        trainer.train()
        assert joined.num_external >= STEPS
        assert any(
            not one.equal(was) for one, was in zip(trainer.model.parameters(), before, strict=True)
        )
        _assert_advantages_are_ours(trainer)
        assert swarm.unconfirmed == ()
        state = json.loads((tmp_path / "out" / STATE_FILE).read_text())
        assert state["step"] == STEPS
        assert swarm.status()["groups_published"] >= STEPS
        node.wait_status(lambda s: s["groups_received"] >= STEPS, "groups of TRL's")
        node.wait_status(lambda s: s["groups_external_used"] >= 1, "learning from them")


def test_others_groups_move_trl_s_weights_as_our_update_does(tmp_path: Path) -> None:
    """One step of gradient descent on four external groups, by TRL and by ours."""
    policy = load_policy("tiny", device="cpu", seed=1)
    ours = load_policy("tiny", device="cpu", seed=1)
    before = [one.detach().clone() for one in policy.model.parameters()]
    with NodeThread(tmp_path) as node:
        sent = [_scored_group(number) for number in range(SIZE)]
        case.send(node, [group for group, _ in sent])
        swarm = Swarm(
            client=node.node.client(),
            manifest=node.node.manifest,
            families=make.SPECS,
            data_dir=tmp_path,
            why_no_draw="",
        )
        with swarm:
            joined = Rollouts(
                swarm, external=4, prompt=lambda question: f"{BOS}{question.text}{ANSWER}"
            )
            descent = torch.optim.SGD(policy.model.parameters(), lr=1.0)
            trainer = _trainer(joined, tmp_path / "out", policy, descent, max_steps=1)
            trainer.train()
            assert joined.num_external == 4
    sgd = torch.optim.SGD(ours.model.parameters(), lr=1.0)
    groups = [_as_ours(ours, number, *one) for number, one in enumerate(sent)]
    stats = update(ours, sgd, groups, GrpoConfig(loss_type="dapo"))
    assert stats.num_steps == 1
    for one, other, was in zip(
        policy.model.parameters(), ours.model.parameters(), before, strict=True
    ):
        torch.testing.assert_close(one - was, other - was, rtol=1e-3, atol=1e-6)
    assert any(not one.equal(was) for one, was in zip(ours.model.parameters(), before, strict=True))


def _scored_group(number: int) -> tuple[RolloutGroup, str]:
    """Another's answers to a real question, and which of them is right."""
    task = make.task(number, question=make.real_question(number))
    (item,) = make.real_worker().items([coordinates_of(task)])
    assert item.answer is not None
    texts = ["none", item.answer, "7777", item.answer][: SIZE - number % 2]
    return make.group(of=task, texts=texts), item.answer


def _as_ours(policy: Policy, number: int, group: RolloutGroup, answer: str) -> TrainGroup:
    """The group as a node's default takes it: what is better than the rest."""
    rewards = [float(one.text == answer) for one in group.completions]
    return TrainGroup(
        prompt_ids=encode_prompt(policy, make.real_question(number)),
        completions=[
            encode_completion(policy, answer, FinishReason.STOP) for reward in rewards if reward
        ],
        advantages=[one for one in group_advantages(rewards) if one > 0],
        external=True,
    )


def _trainer(
    joined: Rollouts,
    out: Path,
    policy: Policy | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    **changes: Any,
) -> Any:
    trl: Any = importlib.import_module("trl")
    policy = policy or load_policy("tiny", device="cpu", seed=1)
    return trl.GRPOTrainer(
        model=policy.model,
        processing_class=policy.tokenizer,
        reward_funcs=joined.reward,
        rollout_func=joined,
        train_dataset=joined.dataset(64, seed=1),
        optimizers=(optimizer, None),
        args=trl.GRPOConfig(
            output_dir=str(out),
            **{
                "per_device_train_batch_size": 4 * SIZE,
                "num_generations": SIZE,
                "max_completion_length": 24,
                "max_steps": STEPS,
                "save_steps": 2,
                "learning_rate": 1e-3,
                "use_cpu": True,
                "bf16": False,
                "report_to": [],
                "disable_tqdm": True,
                **changes,
            },
        ),
    )


def _assert_advantages_are_ours(trainer: Any) -> None:
    """TRL's advantages in each group are those of our default."""
    rewards, advantages = trainer._logs["rewards"]["reward"], trainer._logs["advantages"]
    assert len(rewards) == len(advantages) >= 4 * SIZE
    rows = list(zip(rewards, advantages, strict=True))
    num_with_signal = 0
    for at in range(0, len(rows), SIZE):
        scored = [row for row in rows[at : at + SIZE] if row[0] == row[0]]  # nan: skipped
        ours = group_advantages([reward for reward, _ in scored])
        assert [value for _, value in scored] == pytest.approx(ours, abs=1e-3)
        num_with_signal += any(ours)
    assert num_with_signal >= 2
