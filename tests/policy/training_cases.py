"""A round of SAPO in small, for tests: a random model, real questions, rewards by rule."""

from __future__ import annotations

import functools
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from shoal_base.node_folders import METRICS_FILE
from shoal_policy.choice.strategy import parse_strategy
from shoal_policy.model.loading import Policy
from shoal_policy.node.link import NodeLink
from shoal_policy.round.config import RoundConfig
from shoal_policy.sapo import RoundRunner, TrainState
from shoal_policy.tasks import MissingReward, TaskSource
from shoal_policy.trainer import Trainer
from shoal_policy.trainer_context import TrainerContext
from shoal_policy.update.grpo import GrpoConfig, make_optimizer
from shoal_settings.schema import Settings
from shoal_wire.digests import group_id
from shoal_wire.types import BatchId, FinishReason, PeerId, PublishedGroup, RolloutGroup, Task
from tests.policy import tiny_models
from tests.support import factories as make
from tests.support.local_node import LocalNode, NodeThread, wall_ms

POSITIONS = 256
SAMPLING = tiny_models.sampling(6)


class SteeredTasks(TaskSource):
    """Real questions; every second completion of a group is right, unless its text says `same`."""

    def __init__(self) -> None:
        super().__init__(make.real_worker(), make.SPECS)
        self.events: list[str] = []

    def verify_own(self, groups: Sequence[Any]) -> list[list[float]]:
        """Note when own rewards are computed."""
        self.events.append("verify own")
        return super().verify_own(groups)

    def _verify(
        self, groups: Sequence[tuple[Task, Sequence[tuple[str, FinishReason]]]], **_limits_s: float
    ) -> list[list[float] | MissingReward]:
        return [
            [float(i % 2 and "same" not in text) for i, (text, _) in enumerate(answers)]
            for _, answers in groups
        ]


def policy() -> Policy:
    """A fresh random policy, the same each time."""
    return tiny_models.policy("qwen2", positions=POSITIONS)


def weights(of: Policy) -> dict[str, torch.Tensor]:
    """A copy of the policy's weights."""
    return {name: value.clone() for name, value in of.model.state_dict().items()}


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether no weight differs at all."""
    return all(torch.equal(one[name], other[name]) for name in one)


def rounds(
    of: Policy,
    tasks: TaskSource,
    link: NodeLink,
    *,
    local: int = 2,
    external: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    strategy: str = "uniform",
    lr: float = 1e-3,
    **changes: Any,
) -> RoundRunner:
    """Rounds with I = `local` and J = `external`; `changes` are of their settings."""
    small = {
        "num_completions": 4,
        "oversample": 4,
        "sampling": SAMPLING,
        "grpo": GrpoConfig(max_completion_tokens=SAMPLING.max_new_tokens + 1),
        "seed": 1,
        "strategy": parse_strategy(strategy),
    }
    return RoundRunner(
        TrainState(policy=of, optimizer=make_optimizer(of, lr=lr)),
        surroundings(link, tasks=tasks, should_stop=should_stop),
        RoundConfig(num_local=local, num_external=external, **{**small, **changes}),
    )


def surroundings(
    link: NodeLink | None = None,
    *,
    tasks: TaskSource | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    swarm: str = "",
) -> TrainerContext:
    """A trainer's context; by default without a node and never stopped."""
    return TrainerContext(
        tasks=tasks or SteeredTasks(),
        link=link or NodeLink(None),
        rules=make.swarm().rules,
        should_stop=should_stop,
        swarm=swarm,
    )


def external_group(number: int, texts: Sequence[str] = ("1", "2", "3", "4")) -> RolloutGroup:
    """Another node's answers to a real question."""
    return make.group(of=make.task(number, question=make.real_question(number)), texts=texts)


def published(group: RolloutGroup, publisher: str) -> PublishedGroup:
    """A group as the node offers it."""
    return PublishedGroup(
        group=group,
        group_id=group_id(group),
        publisher=PeerId(publisher),
        batch_id=BatchId(bytes(16)),
        round=1,
        created_ms=0,
        policy=make.POLICY,
        sampling=make.SAMPLING,
    )


@contextmanager
def connected(node: NodeThread) -> Iterator[NodeLink]:
    """A trainer's link with a node, closed in the end."""
    client = node.node.client()
    yield NodeLink(client)
    client.close()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def metrics(data_dir: Path, event: str = "") -> list[dict[str, Any]]:
    """Return a run's metrics: all of them, or the events of one kind."""
    rows = [json.loads(line) for line in (data_dir / METRICS_FILE).read_text().splitlines()]
    return [row for row in rows if event in ("", row["event"])]


async def _receive(node: LocalNode, groups: Sequence[RolloutGroup], ago_ms: int) -> str:
    author = make.Author(node.manifest, now_ms=wall_ms() - ago_ms)
    await node.receive(author.signed(author.batch(groups)))
    return author.peer_id


def send(node: NodeThread, groups: Sequence[RolloutGroup], *, ago_ms: int = 0) -> str:
    """Let the node receive groups that another made so long ago; return that one's peer id."""
    return node.call(_receive, node.node, groups, ago_ms)


@functools.cache
def model_folder(root: Path) -> str:
    """A folder that `from_pretrained` loads."""
    folder = root / "model"
    if not folder.exists():
        tiny_models.save(folder, tiny_models.model("qwen2", positions=POSITIONS))
    return str(folder)


def settings(data_dir: Path, model: str, **changes: Any) -> Settings:
    """Settings of a small trainer."""
    small = {
        "local": 2,
        "external": 0,
        "completions": 4,
        "max_new_tokens": 6,
        "rounds": 2,
        "learning_rate": 1e-3,
        "device": "cpu",
        "checkpoint_seconds": 1000.0,
        # The paper's round: one step, groups of others as they come.
        "strategy": "uniform",
        "minibatches": 1,
    }
    return Settings(data_dir=data_dir, model=model, **{**small, **changes})


def trainer(
    data_dir: Path,
    model: str,
    *,
    link: NodeLink | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    seed: int = 1,
    tasks: TaskSource | None = None,
    swarm: str = "",
    **changes: Any,
) -> Trainer:
    """A small trainer; `changes` are of its settings."""
    data_dir.mkdir(exist_ok=True)
    context = surroundings(link, should_stop=should_stop, tasks=tasks, swarm=swarm)
    return Trainer(settings(data_dir, model, **changes), context, seed=seed)


def assert_resumes(
    root: Path, make: Callable[..., Trainer], *, rounds: int
) -> tuple[dict[str, torch.Tensor], Trainer]:
    """A run that is interrupted half-way ends as one that is not; its first weights, and that one.

    `make` is `trainer` with a model.
    """
    whole = make(root / "whole", rounds=rounds)
    start = weights(whole.training_run.policy)
    whole.run()
    make(root / "parts", rounds=rounds // 2).run()
    resumed = make(root / "parts", rounds=rounds)
    assert resumed.training_run.round == rounds // 2
    resumed.run()
    assert same_weights(weights(whole.training_run.policy), weights(resumed.training_run.policy))
    return start, whole
