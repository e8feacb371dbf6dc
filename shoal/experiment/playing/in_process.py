"""One job in one process: N policies take turns at rounds, joined by a swarm in memory.

Deterministic from its seed: every draw is seeded by seed, node and round, and time is virtual.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from policy.evaluate import evaluate
from policy.model.loading import Policy
from policy.model.start import fresh_policy
from policy.node.exchange import Exchange
from policy.record.metrics import held_out_metrics, round_metrics
from policy.record.progress import Progress
from policy.sapo import Rounds
from policy.tasks import TaskSource
from policy.trainer import round_config, start_balance
from policy.update.grpo import make_optimizer
from shoal.experiment.plan import Job
from shoal.experiment.playing.attackers import ATTACKS, PLANTED, Attacker
from shoal.experiment.playing.behaviour import BEHAVIOURS
from shoal.experiment.playing.memory_swarm import Hub, Keys, Member, MemoryExchange
from shoal.experiment.playing.tasks import SharedWorker, SpecialistSource
from shoal_settings.schema import Settings
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.swarm import specs_of, starting_families
from shoal_wire.manifest import Manifest, make_manifest
from shoal_wire.types import RolloutBatch

Line = dict[str, Any]
"""One object of a job's JSONL: an event with its node."""


@dataclass(slots=True)
class _Node:
    settings: Settings
    policy: Policy
    rounds: Rounds
    member: Member | None
    progress: Progress
    version: int = 0
    said: int = 0
    """Completions shared in the round."""
    planted: int = 0
    """Of those, ones that hold what an attacker of the swarm wants said."""

    def listen(self, batch: RolloutBatch, planted: Sequence[str]) -> None:
        """Count what an attacker has made this node say."""
        texts = [one.text for group in batch.groups for one in group.completions]
        self.said += len(texts)
        self.planted += sum(any(phrase in text for phrase in planted) for text in texts)

    def planted_share(self) -> float:
        """Return the share of the round, and begin the next."""
        share = self.planted / self.said if self.said else 0.0
        self.said = self.planted = 0
        return share


class Workers:
    """The task workers of this process, one for each set of families."""

    def __init__(self) -> None:
        self._workers: dict[bytes, SharedWorker] = {}

    def of(self, manifest: Manifest, settings: Settings) -> SharedWorker:
        """Return the worker that serves this manifest, starting it if need be."""
        found = self._workers.get(manifest.digest)
        if found is None:
            limits = WorkerLimits(request_timeout_seconds=settings.verify_seconds)
            found = SharedWorker(specs_of(manifest, settings.task_file), limits=limits)
            self._workers[manifest.digest] = found
        return found

    def close(self) -> None:
        """End all."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()


@contextmanager
def workers() -> Iterator[Workers]:
    """The task workers of this process, ended with the context."""
    made = Workers()
    try:
        yield made
    finally:
        made.close()


def play(job: Job, workers: Workers, emit: Callable[[Line], None]) -> None:
    """Play a job's rounds; every node's rounds and evaluations go to `emit` as they happen.

    Blocks. Raises what a trainer raises: ModelError, NonFiniteError, TaskError.
    """
    with _one_seed(job.seed):
        swarm = _Swarm(job, workers)
        swarm.evaluate(0, emit)
        for number in range(1, job.rounds + 1):
            swarm.play_round(number, emit)
            swarm.evaluate(number, emit)


class _Swarm:
    def __init__(self, job: Job, workers: Workers) -> None:
        self._job = job
        first = job.node_settings(0)
        manifest = make_manifest("experiment", starting_families(first.tasks, first.task_file))
        self._worker = workers.of(manifest, first)
        self._specs = specs_of(manifest, first.task_file)
        self._tasks = TaskSource(self._worker, self._specs)
        self._hub = Hub(manifest, self._worker)
        kinds = [node.behaviour for node in job.arm.nodes]
        self._planted = sorted({PLANTED[kind] for kind in kinds if kind in PLANTED})
        self._attackers = {
            index: self._attacker(index) for index, kind in enumerate(kinds) if kind in ATTACKS
        }
        self._nodes = {
            index: self._node(index, manifest)
            for index, kind in enumerate(kinds)
            if kind not in ATTACKS
        }

    def _attacker(self, index: int) -> Attacker:
        settings = self._job.node_settings(index)
        attacker = Attacker(
            self._job.arm.nodes[index].behaviour,
            member=Member(self._hub, Keys.from_seed(settings.seed), settings),
            worker=self._worker,
            questions=self._tasks.draw,
            groups=settings.local,
            completions=settings.completions,
            seed=settings.seed,
        )
        attacker.join(self._hub)
        return attacker

    def _node(self, index: int, manifest: Manifest) -> _Node:
        settings = self._job.node_settings(index)
        policy = fresh_policy(settings, seed=settings.seed)
        optimizer = make_optimizer(
            policy, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        member = self._join(index, settings) if self._job.shares else None
        exchange = Exchange(None) if member is None else MemoryExchange(member)
        rounds = Rounds(
            policy=policy,
            optimizer=optimizer,
            tasks=self._tasks_of(index),
            exchange=exchange,
            rules=manifest.rules,
            config=round_config(settings, settings.seed),
            should_stop=lambda: False,
            balance=start_balance(settings, None),
        )
        node = _Node(settings, policy, rounds, member, Progress())
        if member is not None and self._planted:
            self._listen(node, member)
        return node

    def _listen(self, node: _Node, member: Member) -> None:
        behave = member.on_publish

        def heard(batch: RolloutBatch) -> RolloutBatch | None:
            node.listen(batch, self._planted)
            return behave(batch)

        member.on_publish = heard

    def _tasks_of(self, index: int) -> TaskSource:
        families = self._job.arm.nodes[index].families
        if not families:
            return self._tasks
        return SpecialistSource(self._worker, self._specs, families)

    def _join(self, index: int, settings: Settings) -> Member:
        member = Member(self._hub, Keys.from_seed(settings.seed), settings)
        behave = BEHAVIOURS[self._job.arm.nodes[index].behaviour]
        rng = random.Random(f"{settings.seed}/behaviour")
        member.on_publish = lambda batch: behave(batch, rng)
        if settings.external:  # who never draws need not store
            self._hub.join(member)
        return member

    def play_round(self, number: int, emit: Callable[[Line], None]) -> None:
        """Every node plays the round, in an order that changes: none is always last to hear."""
        self._hub.clock.now = float(number)
        order = list(range(self._job.num_nodes))
        random.Random(f"{self._job.seed}/{number}/order").shuffle(order)
        for index in order:
            if index in self._attackers:
                self._attackers[index].play(number)
                continue
            if not self._job.arm.nodes[index].plays(number, self._job.rounds):
                continue
            node = self._nodes[index]
            record, stats = node.rounds.play(number, node.version)
            node.version += stats.num_steps
            node.progress.add(record)
            line = {"event": "round", "node": index, **round_metrics(record, node.progress)}
            if self._planted:
                line["planted"] = node.planted_share()
            emit(line)

    def evaluate(self, number: int, emit: Callable[[Line], None]) -> None:
        """Every node answers the held-out questions, where this round asks for it."""
        for index, node in self._nodes.items():
            every = node.settings.eval_every
            if every <= 0 or (number % every and number != self._job.rounds):
                continue
            found = evaluate(
                node.policy,
                self._tasks,
                round_number=number,
                per_family=node.settings.eval_per_family,
                sampling=round_config(node.settings, node.settings.seed).sampling,
                at_once=True,
            )
            emit({"event": "held_out", "node": index, **held_out_metrics(found.to_json())})


@contextmanager
def _one_seed(seed: int) -> Iterator[None]:
    """Seed torch's global generator (fresh adapters draw from it) and put it back after."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def rounded(line: Line, keep: Sequence[str] = ()) -> Line:
    """The line with floats at six digits: files stay small and are the same on every run."""
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) and key not in keep else value
        for key, value in line.items()
    }
