"""A node that shares answers and never trains: SAPO's generator without training (section 3.1).

    questions ──▶ answers (of a server or a model of its own) ──▶ share ──▶ verify, for the record

No tensors: if a server answers, torch is never imported. Rounds are counted on disk before they are
shared, so a restart continues with fresh questions.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from shoal_base.files import is_full, write_atomically
from shoal_base.node_folders import METRICS_FILE
from shoal_base.waits import MINUTE_S, POLL_S, RETRY_S
from shoal_policy.generation.transcript import PlayGames
from shoal_policy.monitor import TrainingMonitor
from shoal_policy.record.earlier_runs import STATE_FILE, archive_run
from shoal_policy.record.metrics import MetricsFile, reward_spread, round_metrics
from shoal_policy.record.pause import RunPause
from shoal_policy.record.phases import Phase, PhaseProgress
from shoal_policy.record.progress import RoundRecord, RunCounters, completion_metrics
from shoal_policy.record.status import build_status
from shoal_policy.rollouts import OwnGroup, Question, publish_requests, sampling_params, shareable
from shoal_policy.trainer_context import TrainerContext
from shoal_settings.schema import Settings
from shoal_tasks.run_check import other_checkpoint
from shoal_wire.types import FinishReason, PolicyInfo

log = logging.getLogger(__name__)


GenerateAnswers = Callable[[Sequence[Question], PlayGames], list[OwnGroup]]
"""Maps questions, and a function that plays games, to groups; fewer if answers failed."""


class GenerateOnly:
    """Runs rounds that end with sharing."""

    def __init__(
        self,
        settings: Settings,
        context: TrainerContext,
        *,
        seed: int,
        answer: GenerateAnswers,
        author: PolicyInfo,
        on_round: Callable[[RoundRecord, RunCounters], None] = lambda _record, _progress: None,
        failure: Callable[[], str] = lambda: "no answers",
        on_alarm: Callable[[str], None] = log.warning,
    ) -> None:
        """`author` is the model that answers, as peers see it. `failure` returns why the latest
        call of `answer` brought none at all."""
        self._settings, self._seed, self._on_round = settings, seed, on_round
        self._tasks, self._link, self._rules = context.tasks, context.link, context.rules
        self._should_stop, self._phases = context.should_stop, context.phases
        self._last_record: RoundRecord | None = None
        self._phases.add_listener(self._on_phase)
        self._answer, self._author, self._failure = answer, author, failure
        self._empty_tries = 0
        self._state_path = settings.data_dir / STATE_FILE
        self._swarm = context.swarm
        if not settings.resume or _is_of_other(self._state_path, settings, context.swarm):
            archive_run(settings.data_dir)
        self.round, self.progress = _load(self._state_path)
        self._monitor = TrainingMonitor(context.tasks, on_alarm=on_alarm, trains=False)
        self._pause = RunPause(
            blocked_by=self._space_problem,
            should_stop=self._should_stop,
            on_change=self._send_paused,
        )
        self._metrics = MetricsFile(
            settings.data_dir / METRICS_FILE,
            last_round=self.round,
            print_json=settings.json_output,
        )

    def run(self) -> None:
        """Run rounds until stopped or until `--rounds` is reached."""
        rounds = self._settings.rounds
        self._send_status("generating", None)
        while not self._should_stop() and not (rounds and self.round >= rounds):
            started = time.monotonic()
            record = self._play(started)
            if record is None:
                continue
            self.progress.add(record)
            self._metrics.append({"event": "round", **round_metrics(record, self.progress)})
            self._last_record = record
            self._send_status("generating", record)
            self._on_round(record, self.progress)
            self._wait(self._settings.round_seconds - (time.monotonic() - started))
        self._pause.wait_for_space()
        self._link.flush()
        self._send_status("finished" if rounds and self.round >= rounds else "stopped", None)

    def _space_problem(self) -> str:
        """Save progress; return why that is impossible, empty if it succeeded."""
        try:
            _save(self._state_path, self.round, self.progress, self._swarm)
        except OSError as error:
            if not is_full(error):
                raise
            return f"no space left in {self._settings.data_dir}"
        if not self._metrics.flush():
            return f"no space left in {self._settings.data_dir}"
        return self._link.disk_full_reason()

    def _send_paused(self, why: str) -> None:
        self._send_status("paused" if why else "generating", None, paused=why)

    def _play(self, started: float) -> RoundRecord | None:
        """Run one round; return None, and do not count it, if stopped or without any answer."""
        number = self.round + 1
        settings = self._settings
        wanted = settings.local * settings.completions
        self._phases.enter(Phase.GENERATING, round=number, of=wanted)
        rng = random.Random(hashlib.sha256(f"{self._seed}/{number}/tasks".encode()).digest())
        own = self._answer(self._tasks.draw(rng, settings.local), self._tasks.play)
        generated = time.monotonic()
        if self._should_stop():
            return None
        if not own:
            self._wait_for_a_server()
            return None
        self._empty_tries = 0
        self.round = number
        if not self._pause.wait_for_space():
            return None
        self._share(own)
        self._phases.enter(Phase.SCORING, round=number)
        rewards = self._tasks.verify_own(own)
        record = _record(
            number,
            own,
            rewards,
            rewards_out_of_range=self._tasks.take_num_out_of_range(),
            seconds=time.monotonic() - started,
            seconds_generate=generated - started,
        )
        self._monitor.after_round(record, own, rewards)
        return record

    def _share(self, own: Sequence[OwnGroup]) -> None:
        settings = self._settings
        found = [shareable(g, self._rules) for g in own]
        shared = [one for one in found if one is not None]
        self.progress.groups_not_shared += len(found) - len(shared)
        for batch in publish_requests(
            shared,
            round_number=self.round,
            policy=self._author,
            sampling=sampling_params(settings),
        ):
            self._link.share(batch)

    def _wait_for_a_server(self) -> None:
        pause = min(MINUTE_S, RETRY_S * 2.0**self._empty_tries)
        self._empty_tries = min(self._empty_tries + 1, 10)
        log.warning("%s; next try in %.0f s", self._failure(), pause)
        self._phases.enter(Phase.WAITING, round=self.round + 1)
        self._wait(pause)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._should_stop() and time.monotonic() < until:
            time.sleep(POLL_S)

    def _on_phase(self, _doing: PhaseProgress) -> None:
        self._send_status("generating", self._last_record)

    def _send_status(self, state: str, record: RoundRecord | None, *, paused: str = "") -> None:
        status = build_status(
            state,
            self.progress,
            current=self._phases.current,
            trains=False,
            round=self.round,
            policy_version=0,
            model=self._author.model_name,
            learning=self._monitor.view(),
            paused=paused or None,
        )
        self._link.send_status(status)
        if state in ("finished", "stopped"):
            self._link.drain()


def _record(
    number: int, own: Sequence[OwnGroup], rewards: Sequence[Sequence[float]], **measured: float
) -> RoundRecord:
    """Return a round's record; training fields are 0, or None where 0 would be misleading."""
    known: dict[str, Any] = {
        field.name: None if "None" in str(field.type) else 0 for field in fields(RoundRecord)
    }
    answers = [answer for group in own for answer in group.answers]
    scores = [reward for group in rewards for reward in group]
    num_cut = sum(answer.finish_reason is FinishReason.LENGTH for answer in answers)
    known |= completion_metrics([answer.num_tokens for answer in answers], num_cut)
    known |= measured | {"round": number, "groups_local": len(own)}
    known |= {"local_groups": len(own), "local_completions": len(answers)}
    _, known["local_frac_reward_zero_std"] = reward_spread([one for one in rewards if one])
    if scores:
        known["reward_local"] = sum(scores) / len(scores)
    return RoundRecord(**known)


def _load(path: Path) -> tuple[int, RunCounters]:
    try:
        document = json.loads(path.read_text())
        return int(document["round"]), RunCounters.from_json(document["progress"])
    except FileNotFoundError:
        return 0, RunCounters()
    except (OSError, ValueError, LookupError, TypeError):
        # Damaged: count from the clock, so that new questions do not repeat old ones.
        return int(time.time()), RunCounters()


def _is_of_other(path: Path, settings: Settings, swarm: str) -> bool:
    """Return whether the earlier rounds belong to another swarm. Raises RunMismatchError if that is
    not allowed."""
    try:
        then = str(json.loads(path.read_text())["swarm"])
    except (OSError, ValueError, LookupError, TypeError):
        return False
    if not then or not swarm or then == swarm:
        return False
    if not settings.new_run:
        raise other_checkpoint(settings.data_dir, then, swarm)
    return True


def _save(path: Path, round_number: int, progress: RunCounters, swarm: str) -> None:
    state = {"round": round_number, "progress": progress.to_json(), "swarm": swarm}
    write_atomically(path, json.dumps(state).encode())
