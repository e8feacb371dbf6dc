"""The trainer's lifecycle: start or resume, run rounds, write checkpoints, stop.

    load ──▶ handshake ──▶ ┌▶ round ──▶ record ──▶ checkpoint? ──┐──▶ last checkpoint ──▶ exit
                           └─────────────────────────────────────┘

A checkpoint names the external groups whose effect it contains; only after it is on disk are they
acknowledged to the node. So whenever a process is killed, each group takes effect exactly once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from shoal_base.node_folders import METRICS_FILE
from shoal_base.waits import POLL_S
from shoal_policy.backend import LOCAL_BACKEND, Backend
from shoal_policy.builders import build_round_runner, build_train_state
from shoal_policy.checkpoint.pace import CheckpointPace
from shoal_policy.checkpoint.saved import CheckpointError, NoRoomError
from shoal_policy.checkpoint.saving import save_checkpoint
from shoal_policy.evaluate import EvaluationStopped, evaluate, evaluation_interval, example_of
from shoal_policy.few_shot import add_few_shot
from shoal_policy.generation.decoding import SMALL_PARAMETERS
from shoal_policy.generation.local import NonFiniteError
from shoal_policy.generation.questions import check_prompts_fit
from shoal_policy.judge_client import JudgeClient
from shoal_policy.model.loading import ModelError
from shoal_policy.monitor import TrainingMonitor
from shoal_policy.record.metrics import MetricsFile, held_out_metrics, round_metrics
from shoal_policy.record.pause import RunPause
from shoal_policy.record.phases import Phase, PhaseProgress
from shoal_policy.record.progress import RoundRecord, RunCounters
from shoal_policy.record.sinks import MetricSinks
from shoal_policy.record.status import build_status
from shoal_policy.rollback import RollbackWatch
from shoal_policy.rollouts import OwnGroup, sampling_params
from shoal_policy.sapo import RoundOutcome
from shoal_policy.tiny import MODEL_NAMES, PLAYER
from shoal_policy.trainer_context import Interrupted, TrainerContext
from shoal_policy.training_run import TrainingRun, begin_or_resume, roll_back
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError
from shoal_tasks.families import GAMES_1

log = logging.getLogger(__name__)

MAX_FULL_RATE = 5e-5
"""Learning rate up to which all weights of a large model were seen to learn (SmolLM2-135M)."""
LARGE_PARAMETERS = SMALL_PARAMETERS
"""Number of weights above which that limit applies."""


class Trainer:
    """Trains one policy."""

    def __init__(
        self,
        settings: Settings,
        context: TrainerContext,
        *,
        seed: int,
        on_round: Callable[[RoundRecord, RunCounters], None] = lambda _record, _progress: None,
        on_alarm: Callable[[str], None] = log.warning,
        backend: Backend = LOCAL_BACKEND,
    ) -> None:
        """Load the policy, or resume from a checkpoint.

        Raises:
            ModelError: the model cannot be used.
            CheckpointError: the newest checkpoint cannot be read, or is of another model.
        """
        self._backend = backend
        self.training_run = run = _start_run(settings, context, backend, seed=seed)
        self._settings, self._seed, self._on_round = settings, seed, on_round
        self._tasks, self._link, self._should_stop = (
            context.tasks,
            context.link,
            context.should_stop,
        )
        self._phases = context.phases
        self._last_record: RoundRecord | None = None
        self._link.restore_consumed(run.consumed_ids)
        self._sampling = sampling_params(settings)
        self._rounds = build_round_runner(
            settings,
            build_train_state(
                settings, run.policy, seed=seed, optimizer=run.optimizer, backend=backend
            ),
            context,
            seed=seed,
            backend=backend,
        )
        self._evaluate_every = evaluation_interval(settings)
        self._judge_client = JudgeClient(
            *(settings, run.policy, self._link, self._sampling),
            seed=seed,
            system=context.tasks.system,
            is_game=lambda family: context.tasks.max_turns(family) > 0,
        )
        self._metrics = _metrics_file(settings, run)
        self._begin_tasks()
        self._sinks = MetricSinks(settings)
        self._monitor = TrainingMonitor(context.tasks, on_alarm=on_alarm)
        self._rollback_watch = RollbackWatch()
        self._pause = RunPause(
            blocked_by=self._space_problem,
            should_stop=self._should_stop,
            on_change=self._send_paused,
        )
        self._checkpoint_pending = False
        self._checkpoint_pace = CheckpointPace(settings.checkpoint_seconds)
        self._checkpoint_round = run.round
        self._phases.add_listener(self._on_phase)

    def _begin_tasks(self) -> None:
        """Continue the run's statistics, which begin again in part if its tasks have changed."""
        run, names = self.training_run, self._tasks.names
        if run.progress.begin({name: self._tasks.digest(name) for name in names}):
            event = {"event": "tasks", "round": run.round, "families": list(names)}
            self._metrics.append(event)

    def run(self) -> None:
        """Run rounds until stopped or until `--rounds` is reached; then write a checkpoint.

        Waits while the disk is full; if stopped then, rounds since the last checkpoint are lost.

        Raises:
            ModelError: none of the questions fits the model.
            CheckpointError: the last checkpoint could not be written.
            DivergedError: rolling back did not help.
        """
        try:
            if not self._should_stop():
                check_prompts_fit(self.training_run.policy, self._tasks)
            self._run_rounds()
            self._write_judge_metrics(
                self._judge_client.wait_for_score(
                    self.training_run.round, self.training_run.policy_version, self._should_stop
                )
            )
            self._write_last_checkpoint()
        finally:
            self._sinks.close()
        self._link.flush()
        self._send_status("finished" if self._is_complete() else "stopped", None)
        self._link.drain()

    def _is_complete(self) -> bool:
        return 0 < self._settings.rounds <= self.training_run.round

    def _run_rounds(self) -> None:
        run = self.training_run
        self._send_status("training", None)
        self._evaluate_if_due()
        while not self._should_stop() and not self._is_complete():
            started = time.monotonic()
            try:
                outcome = self._rounds.run_round(run.round + 1, run.policy_version)
            except Interrupted:
                break
            except NonFiniteError:
                if run.policy_version == 0 and not run.has_checkpoint:
                    raise  # the model itself is non-finite
                self._roll_back()
                continue
            self._finish_round(outcome)
            self._pause.wait_for_space()
            self._wait_round_seconds(started)

    def _write_last_checkpoint(self) -> None:
        try:
            self.checkpoint()
        except NoRoomError:
            if not self._pause.wait_for_space():
                raise

    def _space_problem(self) -> str:
        """Retry failed writes; return why they still fail, empty if none does."""
        if not self._metrics.flush():
            return f"no space left in {self._settings.data_dir}"
        if self._checkpoint_pending:
            try:
                self.checkpoint()
            except NoRoomError as error:
                return str(error)
            except CheckpointError as error:
                self._checkpoint_pending = False
                log.error("checkpoint failed, training continues: %s", error)
        return self._link.disk_full_reason()

    def _send_paused(self, why: str) -> None:
        self._send_status("paused" if why else "training", None, paused=why)

    def checkpoint(self) -> None:
        """Write a checkpoint of the rounds so far, then acknowledge the groups in it."""
        run = self.training_run
        self._checkpoint_pace.begin()
        if run.round == self._checkpoint_round:
            return
        if not self._backend.is_finite(run.policy):
            log.error("no checkpoint of round %d: its weights are not finite", run.round)
            return
        self._phases.enter(Phase.SAVING, round=run.round)
        self._link.flush()  # the node has stored all batches that the checkpoint covers
        state = run.state(self._link.consumed_for_checkpoint())
        try:
            save_checkpoint(self._settings.data_dir, run.policy, run.optimizer, state)
        except NoRoomError:
            self._checkpoint_pending = True
            raise
        self._checkpoint_pace.end()
        self._checkpoint_pending = False
        self._checkpoint_round = run.round
        run.has_checkpoint = True
        self._link.consume_held()

    def _roll_back(self) -> None:
        """Roll back to the weights of the last checkpoint, or of the start; rounds count on.

        Raises:
            DivergedError: earlier rollbacks have not helped.
        """
        self._rollback_watch.on_rollback()
        self.training_run.progress.rollbacks += 1
        roll_back(self.training_run, self._settings, seed=self._seed, backend=self._backend)
        self._link.release_held()
        version = self.training_run.policy_version
        log.error("loss stayed non-finite: rolled back to policy version %d", version)

    def _finish_round(self, outcome: RoundOutcome) -> None:
        run, progress, record = self.training_run, self.training_run.progress, outcome.record
        run.round = record.round
        run.policy_version += outcome.stats.num_steps
        if not self._checkpoint_pace.is_due:  # otherwise the checkpoint sends it
            self._link.send_report()
        progress.add(record)
        progress.groups_not_shared += outcome.num_not_shared
        self._write_metrics("round", round_metrics(record, progress))
        self._evaluate_if_due()
        self._write_judge_metrics(self._judge_client.after_round(run.round, run.policy_version))
        self._monitor.after_round(record, outcome.own, outcome.own_rewards)
        self._send_status("training", record)
        self._last_record = record
        self._on_round(record, progress)
        if self._rollback_watch.is_due(outcome.stats):
            self._roll_back()
        self._checkpoint_if_due()
        self._link.send_report()

    def _checkpoint_if_due(self) -> None:
        if not self._checkpoint_pace.is_due:
            return
        try:
            self.checkpoint()
        except NoRoomError:
            return  # no round begins before it is written
        except CheckpointError as error:
            # The next one may succeed; until then nothing is acknowledged.
            log.error("checkpoint failed, training continues: %s", error)

    def _evaluate_if_due(self) -> None:
        """Evaluate on held-out questions if this round requires it and it was not done yet."""
        run, every = self.training_run, self._evaluate_every
        done = run.progress.held_out
        if not every or run.round % every or (done and done["round"] == run.round):
            return
        self._phases.enter(
            Phase.EVALUATING,
            round=run.round,
            of=self._settings.eval_per_family * self._tasks.num_families,
        )
        answered: list[tuple[OwnGroup, float]] = []
        try:
            held_out = evaluate(
                run.policy,
                self._tasks,
                round_number=run.round,
                per_family=self._settings.eval_per_family,
                sampling=self._sampling,
                should_stop=self._should_stop,
                on_step=self._phases.step,
                on_answers=lambda groups, rewards: answered.extend(
                    zip(groups, rewards, strict=True)
                ),
            ).to_json()
        except EvaluationStopped:
            return  # repeated when the run resumes
        except (TaskError, ModelError) as error:
            log.warning("no held-out evaluation at round %d: %s", run.round, error)
            return
        first = (run.progress.held_out_initial or {}).get("example") or {}
        held_out["example"] = example_of(answered, first.get("question"))
        run.progress.add_held_out(held_out)
        self._write_metrics("held_out", held_out_metrics(held_out))

    def _write_judge_metrics(self, figures: dict[str, Any] | None) -> None:
        if figures is not None:
            self._write_metrics("judge", figures)

    def _write_metrics(self, event: str, figures: dict[str, Any]) -> None:
        self._metrics.append({"event": event, **figures})
        self._sinks.write(figures)

    def _wait_round_seconds(self, started: float) -> None:
        """Wait for `--round-seconds` to pass, in small steps so that a stop is noticed."""
        while not self._should_stop():
            left = self._settings.round_seconds - (time.monotonic() - started)
            if left <= 0:
                return
            if self._phases.current.phase is not Phase.WAITING:
                self._phases.enter(Phase.WAITING, round=self.training_run.round + 1)
            time.sleep(min(POLL_S, left))

    def _on_phase(self, _doing: PhaseProgress) -> None:
        self._send_status("training", self._last_record)

    def _send_status(self, state: str, record: RoundRecord | None, *, paused: str = "") -> None:
        run = self.training_run
        status = build_status(
            state,
            run.progress,
            current=self._phases.current,
            round=run.round,
            policy_version=run.policy_version,
            model=run.policy.name,
            learning=self._monitor.view(),
            paused=paused or None,
        )
        self._link.send_status(status)


def _start_run(
    settings: Settings, context: TrainerContext, backend: Backend, *, seed: int
) -> TrainingRun:
    """Return a run with its policy in place. Raises ModelError, CheckpointError."""
    is_external = settings.model not in MODEL_NAMES
    if is_external:  # embedded ones load at once
        log.info("loading model %s", settings.model)
    run = begin_or_resume(settings, seed=seed, swarm=context.swarm)
    run.policy, run.optimizer = backend.prepare(run.policy, run.optimizer)
    if is_external:
        num_weights = sum(weight.numel() for weight in run.policy.model.parameters())
        where = run.policy.device
        log.info("model loaded: %.1f M parameters on %s", num_weights / 1e6, where)
        _warn_about_learning_rate(settings, num_weights)
        _warn_about_dtype(settings)
    else:
        _warn_about_games(settings, context)
    run.policy = add_few_shot(
        *(run.policy, settings, context),
        cache_dir=settings.data_dir,
        has_begun=run.round > 0,
    )
    return run


def _warn_about_games(settings: Settings, context: TrainerContext) -> None:
    """Warn if an embedded model cannot play the swarm's games."""
    are_games = set(context.tasks.names) <= {spec.name for spec in GAMES_1}
    if are_games and settings.model != PLAYER:
        log.warning("%s cannot play this swarm's games: use --model %s", settings.model, PLAYER)


def _warn_about_learning_rate(settings: Settings, num_weights: int) -> None:
    """Warn if the learning rate would break a model of this size within rounds."""
    too_high = settings.learning_rate > MAX_FULL_RATE and not settings.lora_rank
    if too_high and num_weights > LARGE_PARAMETERS and settings.role != "generate":
        log.warning(
            "--learning-rate %g is too high for all weights of a model of this size: its answers "
            "become useless within rounds; use --learning-rate 1e-5, or --lora-rank 16",
            settings.learning_rate,
        )


def _warn_about_dtype(settings: Settings) -> None:
    """Warn if optimiser steps are too small for the weights' dtype."""
    if settings.dtype == "bfloat16" and not settings.lora_rank and settings.role != "generate":
        log.warning(
            "--dtype bfloat16 on all weights loses nearly every small step (at a rate of 1e-6, 132 "
            "of 52,032 weights moved in 20 steps); use --dtype auto, or --lora-rank 16"
        )


def _metrics_file(settings: Settings, run: TrainingRun) -> MetricsFile:
    evaluated = run.progress.held_out or {"round": -1}
    return MetricsFile(
        settings.data_dir / METRICS_FILE,
        last_round=run.round,
        last_held_out=evaluated["round"],
        print_json=settings.json_output,
    )
