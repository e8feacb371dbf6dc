"""One job in one process: N policies take turns at rounds, joined by a swarm in memory.

Deterministic from its seed: every draw is seeded by seed, node and round, and time is virtual.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import trio
import trio.testing

from shoal_ipc import messages as m
from shoal_lab.experiment.plan import Job
from shoal_lab.experiment.run.attackers import ATTACKS, PLANTED, Attacker, hearing
from shoal_lab.experiment.run.behaviour import BEHAVIOURS, delayed
from shoal_lab.experiment.run.journal import Journal
from shoal_lab.experiment.run.learners import LEARNERS
from shoal_lab.experiment.run.memory_swarm import MemoryLink, MemoryMember, MemorySwarm
from shoal_lab.experiment.run.shared_groups import SharedGroups
from shoal_lab.experiment.run.tasks import SharedWorker, SpecialistSource
from shoal_lab.simulation.clock import deterministic
from shoal_p2p.process import root_error
from shoal_policy.backend import LOCAL_BACKEND
from shoal_policy.builders import build_round_runner, build_train_state
from shoal_policy.evaluate import HeldOut, evaluate
from shoal_policy.few_shot import add_few_shot
from shoal_policy.model.examples import FewShotExamples
from shoal_policy.model.loading import Policy
from shoal_policy.model.shared_base import BaseModelCache
from shoal_policy.node.link import NodeLink
from shoal_policy.record.metrics import held_out_metrics, round_metrics
from shoal_policy.record.progress import RunCounters
from shoal_policy.rollouts import OwnGroup, sampling_params
from shoal_policy.round.config import round_config
from shoal_policy.sapo import RoundRunner, TrainState
from shoal_policy.tasks import TaskSource
from shoal_policy.trainer_context import TrainerContext
from shoal_settings.schema import Settings
from shoal_tasks.swarm import specs_of, starting_families
from shoal_wire.manifest import Manifest, make_manifest

Line = dict[str, Any]
"""One object of a job's JSONL: an event with its node."""


@dataclass(slots=True)
class _Node:
    settings: Settings
    learner: TrainState
    rounds: RoundRunner
    shared: SharedGroups
    progress: RunCounters
    version: int = 0


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A held-out evaluation, with its answers if they are requested."""

    held_out: HeldOut
    answers: list[Line]


class Workers:
    """The task workers of this process, one for each set of families."""

    def __init__(self) -> None:
        self._workers: dict[bytes, SharedWorker] = {}
        self.few_shot: dict[tuple[object, ...], FewShotExamples] = {}
        """Worked examples found, by manifest and settings: like nodes find the same."""
        self.base_models = BaseModelCache()
        self.first: dict[tuple[object, ...], Evaluated] = {}
        """Evaluations of untrained policies, by everything that decides them."""

    def of(self, manifest: Manifest, settings: Settings) -> SharedWorker:
        """Return the worker that serves this manifest, starting it if need be."""
        found = self._workers.get(manifest.digest)
        if found is None:
            found = SharedWorker(specs_of(manifest, settings.task_files))
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


def play(
    job: Job,
    workers: Workers,
    emit: Callable[[Line], None],
    *,
    journal: Journal | None = None,
    keep_in: Path | None = None,
) -> None:
    """Run a job's rounds; every node's rounds and evaluations go to `emit` as they happen.

    With a `journal`, continue from its last round; the lines before are emitted again. The folder
    `keep_in` stores the results of few-shot trials. Blocks. Raises ModelError, NonFiniteError and
    TaskError as a trainer does, and JournalError.
    """
    clock = trio.testing.MockClock()
    with _one_seed(job.seed), deterministic(job.seed), TemporaryDirectory(prefix="shoal-") as home:
        try:
            swarm = MemorySwarm(folder=Path(home), seed=job.seed, clock=clock)
            kept = _Kept(journal, keep_in)
            trio.run(_play, _Swarm(job, workers, swarm, kept), job.rounds, emit, clock=clock)
        except BaseExceptionGroup as group:
            raise root_error(group) from None


@dataclass(frozen=True, slots=True)
class _Kept:
    """The state that a job stores for its next start."""

    journal: Journal | None
    trials_in: Path | None


async def _play(swarm: _Swarm, rounds: int, emit: Callable[[Line], None]) -> None:
    async with trio.open_nursery() as nursery:
        await swarm.open(nursery)
        for number in range(rounds + 1):
            for line in await swarm.play_round(number):
                emit(line)
        nursery.cancel_scope.cancel()


class _Swarm:
    def __init__(self, job: Job, workers: Workers, memory: MemorySwarm, kept: _Kept) -> None:
        self._job, self._kept, self._workers = job, kept, workers
        self._memory = memory
        first = job.node_settings(0)
        self._manifest = make_manifest(
            "experiment", starting_families(first.task_preset, first.task_files)
        )
        self._worker = workers.of(self._manifest, first)
        self._specs = specs_of(self._manifest, first.task_files)
        self._tasks = TaskSource(self._worker, self._specs)
        self._kinds = [node.behaviour for node in job.arm.nodes]
        self._planted = sorted({PLANTED[kind] for kind in self._kinds if kind in PLANTED})
        self._members: dict[int, MemoryMember] = {}
        self._attackers: dict[int, Attacker] = {}
        self._nodes: dict[int, _Node] = {}

    async def open(self, nursery: trio.Nursery) -> None:
        """Start the nodes of the members that share, each with its trainer or attacker."""
        kinds, job = self._kinds, self._job
        sharing = [i for i, kind in enumerate(kinds) if job.shares or kind in ATTACKS]
        settings = [hearing(kinds[i], job.node_settings(i)) for i in sharing]
        members = await self._memory.open(nursery, self._manifest, self._worker, settings)
        self._members = dict(zip(sharing, members, strict=True))
        for index, kind in enumerate(kinds):
            if kind in ATTACKS:
                self._attackers[index] = self._attacker(index)
            else:
                self._nodes[index] = self._node(index)

    def _attacker(self, index: int) -> Attacker:
        settings = self._job.node_settings(index)
        return Attacker(
            self._kinds[index],
            member=self._members[index],
            worker=self._worker,
            questions=self._tasks.draw,
            groups=settings.local,
            completions=settings.completions,
            seed=settings.seed,
        )

    def _node(self, index: int) -> _Node:
        settings = self._job.node_settings(index)
        context = TrainerContext(
            tasks=self._tasks_of(index),
            link=NodeLink(None),
            rules=self._manifest.rules,
            should_stop=lambda: False,
        )
        fresh = self._workers.base_models.fresh_policy(settings, seed=settings.seed)
        policy = self._with_few_shot(fresh, settings, context)
        shared = SharedGroups(self._planted)
        learner = build_train_state(settings, policy, seed=settings.seed)
        journal = self._kept.journal
        context = replace(context, link=self._link_of(index, settings, shared))
        backend = LOCAL_BACKEND if journal is None else journal.backend(index)
        name = self._job.arm.nodes[index].learner
        if name:
            config = round_config(settings, settings.seed)
            rounds = LEARNERS[name](self._worker, learner, context, config, backend=backend)
        else:
            rounds = build_round_runner(
                settings, learner, context, seed=settings.seed, backend=backend
            )
        return _Node(settings, learner, rounds, shared, RunCounters())

    def _with_few_shot(self, policy: Policy, settings: Settings, context: TrainerContext) -> Policy:
        how = (self._manifest.digest, settings.model, settings.shots, sampling_params(settings))
        found = self._workers.few_shot
        if how not in found:
            context, folder = replace(context, tasks=self._tasks), self._kept.trials_in
            found[how] = add_few_shot(policy, settings, context, cache_dir=folder).few_shot
        return replace(policy, few_shot=found[how])

    def _link_of(self, index: int, settings: Settings, shared: SharedGroups) -> NodeLink:
        member = self._members.get(index)
        if member is None:
            return NodeLink(None)
        behave = delayed(BEHAVIOURS[self._kinds[index]], self._job.arm.nodes[index].delay)
        rng = random.Random(f"{settings.seed}/behaviour")

        def say(batch: m.Publish) -> m.Publish | None:
            if self._planted:
                shared.hear(batch.groups)
            return behave(batch, rng)

        return MemoryLink(member, say)

    def _tasks_of(self, index: int) -> TaskSource:
        families = self._job.arm.nodes[index].families
        if not families:
            return self._tasks
        return SpecialistSource(self._worker, self._specs, families)

    async def play_round(self, number: int) -> list[Line]:
        """Run a round with its evaluations, or look it up; return its lines.

        Round 0 is the evaluation before the first.
        """
        journal = self._kept.journal
        if journal is None:
            return [*(await self._turns(number) if number else ()), *self._evaluate(number)]
        journal.begin(number)
        lines = await self._turns(number) if number else []
        if journal.is_kept(number):
            lines = journal.lines_of(number)
        else:
            lines += self._evaluate(number)
        journal.end(lines, {index: node.learner for index, node in self._nodes.items()})
        return lines

    async def _turns(self, number: int) -> list[Line]:
        """Let every node run the round, in a changing order, so that none always receives last."""
        lines: list[Line] = []
        order = list(range(self._job.num_nodes))
        random.Random(f"{self._job.seed}/{number}/order").shuffle(order)
        for index in order:
            before, line = self._cpu_s(), None
            if index in self._attackers:
                self._attackers[index].play(number)
            elif self._job.arm.nodes[index].plays(number, self._job.rounds):
                line = self._play_one(index, number)
            if index in self._members:
                await self._members[index].end_turn()
                await self._memory.end_turn(len(order))
            if line is not None:
                lines.append({**line, "cpu_seconds": self._cpu_s() - before})
        return lines

    def _cpu_s(self) -> float:
        """Return the CPU seconds spent so far, by this process and for it by the task worker.

        The seconds of a turn are charged to its node: its round, and the validation of its batch by
        all other nodes. So a node is charged for the groups it shares and not for those it
        receives, which is the same for equal nodes.
        """
        return time.process_time() + self._worker.cpu_seconds

    def _play_one(self, index: int, number: int) -> Line:
        node = self._nodes[index]
        outcome = node.rounds.run_round(number, node.version)
        node.version += outcome.stats.num_steps
        node.progress.add(outcome.record)
        line = {"event": "round", "node": index, **round_metrics(outcome.record, node.progress)}
        if self._planted:
            line |= node.shared.take_shares(self._tasks.rewards)
        return line

    def _evaluate(self, number: int) -> list[Line]:
        """Evaluate every node on the held-out questions, if this round is due."""
        lines: list[Line] = []
        for index, node in self._nodes.items():
            every = node.settings.eval_every
            if every <= 0 or (number % every and number != self._job.rounds):
                continue
            found = self._evaluated(node, number)
            figures = held_out_metrics(found.held_out.to_json())
            lines.append({"event": "held_out", "node": index, **figures})
            if number in (0, self._job.rounds):
                lines.append(
                    {"event": "answers", "node": index, "round": number, "answers": found.answers}
                )
        return lines

    def _evaluated(self, node: _Node, number: int) -> Evaluated:
        """Return a node's evaluation; before the first round nodes of one model share it."""
        settings = node.settings
        sampling = sampling_params(settings)
        of = (self._manifest.digest, settings.model, settings.dtype)
        key = (*of, settings.prompt, settings.shots, settings.eval_per_family, sampling)
        if number == 0 and key in self._workers.first:
            return self._workers.first[key]
        answers: list[Line] = []

        def hear(groups: Sequence[OwnGroup], rewards: Sequence[float]) -> None:
            expected = self._tasks.expected([one.question.task for one in groups])
            answers.extend(
                {
                    "family": group.question.task.family,
                    "question": group.question.text,
                    "expected": right,
                    "answer": group.answers[0].text,
                    "reward": reward,
                }
                for group, right, reward in zip(groups, expected, rewards, strict=True)
            )

        held_out = evaluate(
            node.learner.policy,
            self._tasks,
            round_number=number,
            per_family=settings.eval_per_family,
            sampling=sampling,
            at_once=True,
            on_answers=hear if number in (0, self._job.rounds) else None,
        )
        found = Evaluated(held_out, answers)
        if number == 0:
            self._workers.first[key] = found
        return found


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
