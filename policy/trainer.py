"""The trainer's life: start or resume, play rounds, checkpoint, stop when told.

    load ──▶ handshake ──▶ ┌▶ round ──▶ record ──▶ checkpoint? ──┐──▶ last checkpoint ──▶ exit
                           └─────────────────────────────────────┘

A checkpoint names the external groups whose effect it contains; only after it is on disk are they
acknowledged to the node. So whatever is killed when, each group has its effect exactly once.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from policy.checkpoint.saving import (
    CheckpointError,
    Loaded,
    RngState,
    TrainerState,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from policy.choice.balance import Balance
from policy.choice.sampling import parse_strategy
from policy.evaluate import EvaluationStopped, evaluate, evaluation_interval
from policy.generation.local import NonFiniteError
from policy.judged import Judged
from policy.model.from_settings import fresh_policy, lora_spec
from policy.model.loading import ModelError, Policy
from policy.model.lora import LoraSpec, spec_of
from policy.model.memory import can_checkpoint
from policy.model.reference import load_reference
from policy.node.link import NodeLink
from policy.record.earlier_runs import set_aside
from policy.record.metrics import METRICS_FILE, MetricsFile, held_out_metrics, round_metrics
from policy.record.progress import Progress, RoundRecord
from policy.record.quarantine import QUARANTINE_FILE, Quarantine
from policy.record.sinks import MetricSinks
from policy.record.status import Status
from policy.rollback import Watch, restore, weights_finite
from policy.rollouts import sampling_params
from policy.sapo import Interrupted, Means, RoundConfig, Rounds
from policy.tasks import TaskSource
from policy.update.grpo import GrpoConfig, LossType, UpdateStats, make_optimizer
from policy.update.off_policy import FloorMode, OffPolicy, OffPolicyConfig
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError
from shoal_wire.manifest import SwarmRules
from shoal_wire.types import GroupId

log = logging.getLogger(__name__)


class Trainer:
    """One policy in training."""

    def __init__(
        self,
        settings: Settings,
        *,
        tasks: TaskSource,
        link: NodeLink,
        rules: SwarmRules,
        seed: int,
        should_stop: Callable[[], bool],
        on_round: Callable[[RoundRecord, Progress], None] = lambda _record, _progress: None,
        means: Means | None = None,
    ) -> None:
        self._settings = settings
        self._link = link
        self._should_stop = should_stop
        self._on_round = on_round
        self._python_rng = random.Random(seed)
        self._torch_rng = torch.Generator()
        self._seed = seed
        self._watch = Watch()
        self._has_checkpoint = False
        self.progress = Progress()
        self.round = 0
        self.policy_version = 0
        self.policy: Policy
        self._optimizer: Any
        self._start_or_resume(seed)
        if settings.gradient_checkpointing and not can_checkpoint(self.policy.model):
            raise ModelError(
                f"{settings.model}: its layers do not support --gradient-checkpointing"
            )
        config = round_config(settings, seed)
        self._sampling = config.sampling
        self._rounds = Rounds(
            policy=self.policy,
            optimizer=self._optimizer,
            tasks=tasks,
            link=link,
            rules=rules,
            config=config,
            should_stop=should_stop,
            reference=load_reference(settings, seed=seed),
            quarantine=Quarantine(settings.data_dir / QUARANTINE_FILE),
            means=means,
            balance=start_balance(settings, self.progress.balance),
        )
        self._tasks = tasks
        self._judged = Judged(
            settings,
            policy=self.policy,
            link=link,
            sampling=config.sampling,
            seed=seed,
        )
        self._metrics = MetricsFile(
            settings.data_dir / METRICS_FILE,
            last_round=self.round,
            last_held_out=(self.progress.held_out or {"round": -1})["round"],
        )
        self._sinks = MetricSinks(settings, last_round=self.round)
        self._last_checkpoint = time.monotonic()
        self._checkpoint_round = self.round

    def run(self) -> None:
        """Play rounds until told to stop or `--rounds` is reached; then write a checkpoint.

        Raises:
            CheckpointError: the last checkpoint could not be written.
            DivergedError: going back to the last good weights did not help.
        """
        try:
            self._play_rounds()
            self._write_judged(
                self._judged.wait_for_score(self.round, self.policy_version, self._should_stop)
            )
            self.checkpoint()
        finally:
            self._sinks.close()
        self._link.flush()
        rounds = self._settings.rounds
        self._tell_status("finished" if rounds and self.round >= rounds else "stopped", None)
        self._link.drain()

    def _play_rounds(self) -> None:
        settings = self._settings
        self._tell_status("training", None)
        self._evaluate_if_due()
        while not self._should_stop() and not (settings.rounds and self.round >= settings.rounds):
            started = time.monotonic()
            try:
                record, stats = self._rounds.play(self.round + 1, self.policy_version)
            except Interrupted:
                break
            except NonFiniteError:
                if self.policy_version == 0 and not self._has_checkpoint:
                    raise  # that is the model as it came
                self._roll_back()
                continue
            self._finish_round(record, stats)
            self._pace(started)

    def checkpoint(self) -> None:
        """Write a checkpoint of the rounds so far, then acknowledge what it contains."""
        self._last_checkpoint = time.monotonic()
        if self.round == self._checkpoint_round:
            return
        if not weights_finite(self.policy):
            log.error("no checkpoint of round %d: its weights are not finite", self.round)
            return
        self._link.flush()  # what the checkpoint says is done is on the node's disk then
        state = TrainerState(
            round=self.round,
            policy_version=self.policy_version,
            rng=RngState.capture(self._python_rng, self._torch_rng),
            consumed_ids=tuple(i.hex() for i in self._link.consumed_for_checkpoint()),
            counters=self.progress.to_json(),
        )
        save_checkpoint(self._settings.data_dir, self.policy, self._optimizer, state)
        self._checkpoint_round = self.round
        self._has_checkpoint = True
        self._link.consume_held()

    def _start_or_resume(self, seed: int) -> None:
        settings = self._settings
        found = latest_checkpoint(settings.data_dir) if settings.resume else None
        for skipped in found.skipped if found else ():
            log.warning("checkpoint %s is not used: %s", skipped.path.name, skipped.reason)
        if found is None or found.path is None:
            self.policy = fresh_policy(settings, seed=seed)
            self._optimizer = make_optimizer(
                self.policy, lr=settings.learning_rate, weight_decay=settings.weight_decay
            )
            if not settings.resume:  # only now: a wrong model has touched nothing
                self._set_earlier_run_aside()
            return
        loaded = self._load(found.path)
        different = _difference(loaded.policy, settings)
        if different:
            raise CheckpointError(
                f"{found.path} is of {different}: "
                "use another --data-dir, or --no-resume to start over"
            )
        self._has_checkpoint = True
        self.policy, self._optimizer = loaded.policy, loaded.optimizer
        self.round = loaded.state.round
        self.policy_version = loaded.state.policy_version
        self.progress = Progress.from_json(loaded.state.counters)
        loaded.state.rng.restore(self._python_rng, self._torch_rng)
        self._link.restore_consumed([GroupId(bytes.fromhex(i)) for i in loaded.state.consumed_ids])
        log.info("resumed at round %d from %s", self.round, found.path.name)

    def _set_earlier_run_aside(self) -> None:
        aside = set_aside(self._settings.data_dir)
        if aside is not None:
            log.info("starting over: what an earlier run left is in %s", aside)

    def _load(self, path: Path) -> Loaded:
        settings = self._settings
        return load_checkpoint(
            path,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            device=settings.device,
            dtype=settings.dtype,
            attention=settings.attention,
        )

    def _roll_back(self) -> None:
        """Take back the weights of the last checkpoint, or of the start; rounds count on.

        Raises:
            DivergedError: it has not helped before.
        """
        self._watch.rolled_back()
        self.progress.rollbacks += 1
        found = latest_checkpoint(self._settings.data_dir) if self._has_checkpoint else None
        if found is not None and found.path is not None:
            loaded = self._load(found.path)
            good, optimizer = loaded.policy, loaded.optimizer
            self.policy_version = loaded.state.policy_version
        else:
            with torch.random.fork_rng(devices=[]):
                good = fresh_policy(self._settings, seed=self._seed)
            optimizer = make_optimizer(
                good, lr=self._settings.learning_rate, weight_decay=self._settings.weight_decay
            )
            self.policy_version = 0
        restore(self.policy, self._optimizer, good=good, good_optimizer=optimizer)
        self._link.release_held()
        log.error("numbers stayed not finite: back to policy version %d", self.policy_version)

    def _finish_round(self, record: RoundRecord, stats: UpdateStats) -> None:
        self.round = record.round
        self.policy_version += stats.num_steps
        self.progress.add(record)
        self.progress.groups_not_shared += self._rounds.groups_not_shared
        self._rounds.groups_not_shared = 0
        balance = self._rounds.balance
        self.progress.balance = None if balance is None else balance.to_json()
        self._write_down("round", round_metrics(record, self.progress))
        self._evaluate_if_due()
        self._write_judged(self._judged.after_round(self.round, self.policy_version))
        self._tell_status("training", record)
        self._on_round(record, self.progress)
        if self._watch.due(stats):
            self._roll_back()
        if time.monotonic() - self._last_checkpoint >= self._settings.checkpoint_seconds:
            try:
                self.checkpoint()
            except CheckpointError as error:
                # The next one may succeed (space freed); until then nothing is acknowledged.
                log.error("checkpoint failed, training goes on: %s", error)

    def _evaluate_if_due(self) -> None:
        """Evaluate on held-out questions if this round asks for it and it is not done yet."""
        every = evaluation_interval(self._settings)
        done = self.progress.held_out
        if not every or self.round % every or (done and done["round"] == self.round):
            return
        try:
            held_out = evaluate(
                self.policy,
                self._tasks,
                round_number=self.round,
                per_family=self._settings.eval_per_family,
                sampling=self._sampling,
                should_stop=self._should_stop,
            ).to_json()
        except EvaluationStopped:
            return  # made up for when the run is resumed
        except (TaskError, ModelError) as error:
            log.warning("no held-out evaluation at round %d: %s", self.round, error)
            return
        self.progress.held_out = held_out
        self._write_down("held_out", held_out_metrics(held_out))

    def _write_judged(self, figures: dict[str, Any] | None) -> None:
        if figures is not None:
            self._write_down("judge", figures)

    def _write_down(self, event: str, figures: dict[str, Any]) -> None:
        self._metrics.append({"event": event, **figures})
        self._sinks.write(figures)

    def _pace(self, started: float) -> None:
        """Wait out `--round-seconds`, in small steps so that a stop is heard."""
        while not self._should_stop():
            left = self._settings.round_seconds - (time.monotonic() - started)
            if left <= 0:
                return
            time.sleep(min(0.05, left))

    def _tell_status(self, state: str, record: RoundRecord | None) -> None:
        status = Status(
            state=state,
            round=self.round,
            policy_version=self.policy_version,
            model=self.policy.name,
            progress=self.progress,
            last_round=None if record is None else asdict(record),
        )
        self._link.tell_status(status.to_json())


def _difference(policy: Policy, settings: Settings) -> str | None:
    """How a checkpoint's policy is not the one that was asked for; None when it is."""
    if policy.name != settings.model:
        return f"model {policy.name!r}, not {settings.model!r}"
    found, wanted = _adapter_text(spec_of(policy)), _adapter_text(lora_spec(settings))
    return None if found == wanted else f"{found}, not {wanted}"


def _adapter_text(spec: LoraSpec | None) -> str:
    return "all weights" if spec is None else f"LoRA rank {spec.rank} alpha {spec.scale_alpha:g}"


def start_balance(settings: Settings, kept: Mapping[str, Any] | None) -> Balance | None:
    """Return what moves I and J, going on from what a checkpoint kept; None where they stay."""
    if settings.balance == "fixed":
        return None
    return Balance.from_json(kept, settings.local, settings.external)


def round_config(settings: Settings, seed: int) -> RoundConfig:
    """Return a round's settings from the user's."""
    return RoundConfig(
        num_local=settings.local,
        num_external=settings.external,
        num_completions=settings.completions,
        oversample=settings.oversample,
        num_questions=settings.questions,
        strategy=parse_strategy(settings.strategy),
        sampling=sampling_params(settings),
        grpo=GrpoConfig(
            epsilon_low=settings.epsilon_low,
            epsilon_high=settings.epsilon_high,
            loss_type=LossType(settings.loss_type),
            kl_beta=settings.kl_beta,
            off_policy=OffPolicyConfig(
                mode=OffPolicy(settings.off_policy),
                cap=settings.is_cap,
                likelihood_floor=settings.likelihood_floor or None,
                floor_mode=FloorMode(settings.likelihood_floor_mode),
            ),
            epochs=settings.epochs,
            minibatches=settings.minibatches,
            max_grad_norm=settings.max_grad_norm,
            token_budget=settings.token_budget,
            gradient_checkpointing=settings.gradient_checkpointing,
            max_completion_tokens=settings.max_new_tokens + 1,
            temperature=settings.temperature,
        ),
        seed=seed,
        advantage_scale=settings.advantage_scale,
        share_logprobs=settings.share_logprobs,
    )
