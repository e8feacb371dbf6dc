"""The trainer's life: start or resume, play rounds, checkpoint, stop when told.

    load ──▶ handshake ──▶ ┌▶ round ──▶ record ──▶ checkpoint? ──┐──▶ last checkpoint ──▶ exit
                           └─────────────────────────────────────┘

A checkpoint names the external groups whose effect it contains; only after it is on disk are they
acknowledged to the node. So whatever is killed when, each group has its effect exactly once.
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
from shoal_policy.evaluate import EvaluationStopped, evaluate, evaluation_interval
from shoal_policy.generation.decoding import SMALL_PARAMETERS
from shoal_policy.generation.local import NonFiniteError
from shoal_policy.generation.questions import refuse_unanswerable
from shoal_policy.judged import JudgedPolicy
from shoal_policy.model.loading import ModelError
from shoal_policy.monitor import TrainingMonitor
from shoal_policy.record.metrics import MetricsFile, held_out_metrics, round_metrics
from shoal_policy.record.pause import RunPause
from shoal_policy.record.phases import Phase, PhaseProgress
from shoal_policy.record.progress import RoundRecord, RunCounters
from shoal_policy.record.sinks import MetricSinks
from shoal_policy.record.status import told
from shoal_policy.rollback import RollbackWatch
from shoal_policy.rollouts import sampling_params
from shoal_policy.sapo import RoundOutcome
from shoal_policy.shots import with_shots
from shoal_policy.tiny import MODEL_NAMES, PLAYER
from shoal_policy.trainer_context import Interrupted, TrainerContext
from shoal_policy.training_run import TrainingRun, begin_or_resume, roll_back
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError
from shoal_tasks.families import GAMES_1

log = logging.getLogger(__name__)

HIGHEST_RATE = 5e-5
"""Rate up to which all weights of a large model were seen to learn (SmolLM2-135M)."""
LARGE = SMALL_PARAMETERS
"""Weights of a model from which on that counts."""


class Trainer:
    """One policy in training."""

    def __init__(
        self,
        settings: Settings,
        around: TrainerContext,
        *,
        seed: int,
        on_round: Callable[[RoundRecord, RunCounters], None] = lambda _record, _progress: None,
        on_news: Callable[[str], None] = log.warning,
        means: Backend = LOCAL_BACKEND,
    ) -> None:
        """Load the policy, or take up where a checkpoint stands.

        Raises:
            ModelError: the model cannot be used.
            CheckpointError: the newest checkpoint cannot be read, or is of another model.
        """
        self._means = means
        self.course = course = _begun(settings, around, means, seed=seed)
        self._settings, self._seed, self._on_round = settings, seed, on_round
        self._tasks, self._link, self._should_stop = around.tasks, around.link, around.should_stop
        self._phases = around.phases
        self._last_record: RoundRecord | None = None
        self._link.restore_consumed(course.consumed_ids)
        self._sampling = sampling_params(settings)
        self._rounds = build_round_runner(
            settings,
            build_train_state(
                settings, course.policy, seed=seed, optimizer=course.optimizer, means=means
            ),
            around,
            seed=seed,
            means=means,
        )
        self._evaluate_every = evaluation_interval(settings)
        self._judged = JudgedPolicy(
            *(settings, course.policy, self._link, self._sampling),
            seed=seed,
            system=around.tasks.system,
            is_game=lambda family: around.tasks.max_turns(family) > 0,
        )
        self._metrics = _metrics_file(settings, course)
        self._sinks = MetricSinks(settings)
        self._watched = TrainingMonitor(around.tasks, on_news=on_news)
        self._watch = RollbackWatch()
        self._pause = RunPause(
            lack=self._lack, should_stop=self._should_stop, tell=self._tell_paused
        )
        self._checkpoint_waits = False
        self._pace_of_checkpoints = CheckpointPace(settings.checkpoint_seconds)
        self._checkpoint_round = course.round
        self._phases.listen(self._tell_phase)

    def run(self) -> None:
        """Play rounds until told to stop or `--rounds` is reached; then write a checkpoint.

        A full disk is waited for; told to stop then, the rounds since the last checkpoint are lost.

        Raises:
            ModelError: it can be asked none of the questions.
            CheckpointError: the last checkpoint could not be written.
            DivergedError: going back to the last good weights did not help.
        """
        try:
            if not self._should_stop():
                refuse_unanswerable(self.course.policy, self._tasks)
            self._play_rounds()
            self._write_judged(
                self._judged.wait_for_score(
                    self.course.round, self.course.policy_version, self._should_stop
                )
            )
            self._last_checkpoint_written()
        finally:
            self._sinks.close()
        self._link.flush()
        self._tell_status("finished" if self._has_played_all() else "stopped", None)
        self._link.drain()

    def _has_played_all(self) -> bool:
        return 0 < self._settings.rounds <= self.course.round

    def _play_rounds(self) -> None:
        course = self.course
        self._tell_status("training", None)
        self._evaluate_if_due()
        while not self._should_stop() and not self._has_played_all():
            started = time.monotonic()
            try:
                outcome = self._rounds.play(course.round + 1, course.policy_version)
            except Interrupted:
                break
            except NonFiniteError:
                if course.policy_version == 0 and not course.has_checkpoint:
                    raise  # the model was so from the start
                self._roll_back()
                continue
            self._finish_round(outcome)
            self._pause.hold()
            self._pace(started)

    def _last_checkpoint_written(self) -> None:
        try:
            self.checkpoint()
        except NoRoomError:
            if not self._pause.hold():
                raise

    def _lack(self) -> str:
        """Write what could not be written; return why it still cannot, empty if all is."""
        if not self._metrics.flush():
            return f"no space left in {self._settings.data_dir}"
        if self._checkpoint_waits:
            try:
                self.checkpoint()
            except NoRoomError as error:
                return str(error)
            except CheckpointError as error:
                self._checkpoint_waits = False
                log.error("checkpoint failed, training goes on: %s", error)
        return self._link.lack_of_room()

    def _tell_paused(self, why: str) -> None:
        self._tell_status("paused" if why else "training", None, paused=why)

    def checkpoint(self) -> None:
        """Write a checkpoint of the rounds so far, then acknowledge what it contains."""
        course = self.course
        self._pace_of_checkpoints.begin()
        if course.round == self._checkpoint_round:
            return
        if not self._means.finite(course.policy):
            log.error("no checkpoint of round %d: its weights are not finite", course.round)
            return
        self._phases.enter(Phase.SAVING, round=course.round)
        self._link.flush()  # what the checkpoint says is done is on the node's disk then
        state = course.state(self._link.consumed_for_checkpoint())
        try:
            save_checkpoint(self._settings.data_dir, course.policy, course.optimizer, state)
        except NoRoomError:
            self._checkpoint_waits = True
            raise
        self._pace_of_checkpoints.end()
        self._checkpoint_waits = False
        self._checkpoint_round = course.round
        course.has_checkpoint = True
        self._link.consume_held()

    def _roll_back(self) -> None:
        """Take back the weights of the last checkpoint, or of the start; rounds count on.

        Raises:
            DivergedError: it has not helped before.
        """
        self._watch.rolled_back()
        self.course.progress.rollbacks += 1
        roll_back(self.course, self._settings, seed=self._seed, means=self._means)
        self._link.release_held()
        version = self.course.policy_version
        log.error("numbers stayed not finite: back to policy version %d", version)

    def _finish_round(self, outcome: RoundOutcome) -> None:
        course, progress, record = self.course, self.course.progress, outcome.record
        course.round = record.round
        course.policy_version += outcome.stats.num_steps
        progress.add(record)
        progress.groups_not_shared += outcome.num_not_shared
        self._write_down("round", round_metrics(record, progress))
        self._evaluate_if_due()
        self._write_judged(self._judged.after_round(course.round, course.policy_version))
        self._watched.after_round(record, outcome.own, outcome.own_rewards)
        self._tell_status("training", record)
        self._last_record = record
        self._on_round(record, progress)
        if self._watch.due(outcome.stats):
            self._roll_back()
        self._checkpoint_if_due()

    def _checkpoint_if_due(self) -> None:
        if not self._pace_of_checkpoints.due:
            return
        try:
            self.checkpoint()
        except NoRoomError:
            return  # no round begins before it is written
        except CheckpointError as error:
            # The next one may succeed (space freed); until then nothing is acknowledged.
            log.error("checkpoint failed, training goes on: %s", error)

    def _evaluate_if_due(self) -> None:
        """Evaluate on held-out questions if this round asks for it and it is not done yet."""
        course, every = self.course, self._evaluate_every
        done = course.progress.held_out
        if not every or course.round % every or (done and done["round"] == course.round):
            return
        self._phases.enter(
            Phase.EVALUATING,
            round=course.round,
            of=self._settings.eval_per_family * self._tasks.num_families,
        )
        try:
            held_out = evaluate(
                course.policy,
                self._tasks,
                round_number=course.round,
                per_family=self._settings.eval_per_family,
                sampling=self._sampling,
                should_stop=self._should_stop,
                on_step=self._phases.step,
            ).to_json()
        except EvaluationStopped:
            return  # made up for when the run is resumed
        except (TaskError, ModelError) as error:
            log.warning("no held-out evaluation at round %d: %s", course.round, error)
            return
        course.progress.held_out = held_out
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
            if self._phases.doing.phase is not Phase.WAITING:
                self._phases.enter(Phase.WAITING, round=self.course.round + 1)
            time.sleep(min(POLL_S, left))

    def _tell_phase(self, _doing: PhaseProgress) -> None:
        self._tell_status("training", self._last_record)

    def _tell_status(self, state: str, record: RoundRecord | None, *, paused: str = "") -> None:
        course = self.course
        status = told(
            state,
            course.progress,
            doing=self._phases.doing,
            round=course.round,
            policy_version=course.policy_version,
            model=course.policy.name,
            learning=self._watched.view(),
            paused=paused or None,
        )
        self._link.tell_status(status)


def _begun(settings: Settings, around: TrainerContext, means: Backend, *, seed: int) -> TrainingRun:
    """Return a course with its policy in place. Raises ModelError, CheckpointError."""
    names_itself = settings.model not in MODEL_NAMES
    if names_itself:  # the embedded ones are there at once
        log.info("loading model %s", settings.model)
    course = begin_or_resume(settings, seed=seed, swarm=around.swarm)
    course.policy, course.optimizer = means.take(course.policy, course.optimizer)
    if names_itself:
        num_weights = sum(weight.numel() for weight in course.policy.model.parameters())
        where = course.policy.device
        log.info("it is loaded: %.1f million weights on %s", num_weights / 1e6, where)
        _warn_of_rate(settings, num_weights)
        _warn_of_type(settings)
    else:
        _warn_of_games(settings, around)
    course.policy = with_shots(
        *(course.policy, settings, around),
        keep_in=settings.data_dir,
        has_begun=course.round > 0,
    )
    return course


def _warn_of_games(settings: Settings, around: TrainerContext) -> None:
    """Say so where an embedded model knows nothing of the swarm's games, and another one does."""
    are_games = set(around.tasks.names) <= {spec.name for spec in GAMES_1}
    if are_games and settings.model != PLAYER:
        log.warning("%s cannot play this swarm's games: use --model %s", settings.model, PLAYER)


def _warn_of_rate(settings: Settings, num_weights: int) -> None:
    """Say so where the embedded model's learning rate would spoil a larger one within rounds."""
    too_high = settings.learning_rate > HIGHEST_RATE and not settings.lora_rank
    if too_high and num_weights > LARGE and settings.role != "generate":
        log.warning(
            "--learning-rate %g is too high for all weights of a model of this size: its answers "
            "are spoilt within rounds; try --learning-rate 1e-5, or --lora-rank 16",
            settings.learning_rate,
        )


def _warn_of_type(settings: Settings) -> None:
    """Say so where steps are too small for the type of the weights that take them."""
    if settings.dtype == "bfloat16" and not settings.lora_rank and settings.role != "generate":
        log.warning(
            "--dtype bfloat16 on all weights loses nearly every small step (at a rate of 1e-6, 132 "
            "of 52,032 weights moved in 20 steps); try --dtype auto, or --lora-rank 16"
        )


def _metrics_file(settings: Settings, course: TrainingRun) -> MetricsFile:
    evaluated = course.progress.held_out or {"round": -1}
    return MetricsFile(
        settings.data_dir / METRICS_FILE,
        last_round=course.round,
        last_held_out=evaluated["round"],
        is_said=settings.json_output,
    )
