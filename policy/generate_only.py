"""A node that shares answers and never trains: SAPO's generator without a learner (section 3.1).

    questions ──▶ answers (a server's, or a model's of its own) ──▶ share ──▶ verify, for the books

Where a server answers, torch is never imported. Rounds are counted on disk before they are shared:
a restart goes on with fresh questions.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from policy.node.exchange import Exchange
from policy.record.metrics import METRICS_FILE, MetricsFile, round_metrics
from policy.record.progress import Progress, RoundRecord
from policy.record.start_over import STATE_FILE, set_aside
from policy.rollouts import OwnGroup, Question, batch_key, num_answer_bytes, shareable
from policy.tasks import TaskSource
from shoal_base.files import write_atomically
from shoal_ipc import messages as m
from shoal_settings.schema import Settings
from shoal_wire.bundles import bundles
from shoal_wire.manifest import SwarmRules
from shoal_wire.types import Digest, PolicyInfo, SamplingParams

_POLL_SECONDS = 0.05
_EMPTY_PAUSE_SECONDS = 2.0
"""After a round without any answer: a server that refuses at once must not be asked at once."""

Answer = Callable[[Sequence[Question], int], list[OwnGroup]]
"""Questions and a round's number → groups; fewer than asked, where answers failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who answers, as peers are told."""

    model_name: str
    tokenizer_digest: Digest
    """Empty when unknown: no claim about tokens can be checked then."""


class GenerateOnly:
    """Plays rounds that end with sharing."""

    def __init__(
        self,
        settings: Settings,
        *,
        tasks: TaskSource,
        exchange: Exchange,
        rules: SwarmRules,
        seed: int,
        answer: Answer,
        author: Author,
        should_stop: Callable[[], bool],
        on_round: Callable[[RoundRecord, Progress], None] = lambda _record, _progress: None,
    ) -> None:
        self._settings, self._tasks, self._exchange = settings, tasks, exchange
        self._rules, self._seed, self._answer, self._author = rules, seed, answer, author
        self._should_stop, self._on_round = should_stop, on_round
        self._state_path = settings.data_dir / STATE_FILE
        if not settings.resume:
            set_aside(settings.data_dir)
        self.round, self.progress = _load(self._state_path)
        self._metrics = MetricsFile(settings.data_dir / METRICS_FILE, last_round=self.round)

    def run(self) -> None:
        """Play rounds until told to stop or `--rounds` is reached."""
        rounds = self._settings.rounds
        self._tell("generating", None)
        while not self._should_stop() and not (rounds and self.round >= rounds):
            started = time.monotonic()
            record = self._play(started)
            if record is None:
                break
            self.progress.add(record)
            self._metrics.append({"event": "round", **round_metrics(record, self.progress)})
            self._tell("generating", record)
            self._on_round(record, self.progress)
            least = self._settings.round_seconds
            self._wait(started, least if record.groups_local else max(least, _EMPTY_PAUSE_SECONDS))
        _save(self._state_path, self.round, self.progress)
        self._exchange.flush()
        self._tell("finished" if rounds and self.round >= rounds else "stopped", None)

    def _play(self, started: float) -> RoundRecord | None:
        """One round; None when told to stop before anything was shared."""
        number = self.round + 1
        rng = random.Random(hashlib.sha256(f"{self._seed}/{number}/tasks".encode()).digest())
        own = self._answer(self._tasks.draw(rng, self._settings.local), number)
        generated = time.monotonic()
        if self._should_stop():
            return None
        self.round = number
        _save(self._state_path, number, self.progress)
        self._share(own)
        rewards = self._tasks.verify_own(own)
        return _record(
            number,
            own,
            rewards,
            seconds=time.monotonic() - started,
            seconds_generate=generated - started,
        )

    def _share(self, own: Sequence[OwnGroup]) -> None:
        settings = self._settings
        found = [shareable(g, self._rules, with_logprobs=settings.share_logprobs) for g in own]
        groups = [group for group in found if group is not None]
        self.progress.groups_not_shared += len(found) - len(groups)
        for batch in bundles(groups, num_answer_bytes):
            self._exchange.share(
                m.Publish(
                    client_key=batch_key(self.round, batch),
                    round=self.round,
                    policy=PolicyInfo(
                        model_name=self._author.model_name,
                        tokenizer_digest=self._author.tokenizer_digest,
                        policy_version=0,
                    ),
                    sampling=sampling_params(settings),
                    groups=batch,
                )
            )

    def _wait(self, started: float, seconds: float) -> None:
        while not self._should_stop() and time.monotonic() - started < seconds:
            time.sleep(_POLL_SECONDS)

    def _tell(self, state: str, record: RoundRecord | None) -> None:
        progress = self.progress
        self._exchange.tell_status(
            json.dumps(
                {
                    "state": state,
                    "round": self.round,
                    "policy_version": 0,
                    "model": self._author.model_name,
                    "reward_local": progress.reward_now,
                    "reward_start": progress.reward_start,
                    "reward_sum": progress.reward_sum,
                    "groups_not_shared": progress.groups_not_shared,
                    "tokens_generated": progress.tokens_generated,
                    "last_round": None if record is None else round_metrics(record, progress),
                }
            )
        )
        if state in ("finished", "stopped"):
            self._exchange.drain()


def sampling_params(settings: Settings) -> SamplingParams:
    """How answers are drawn."""
    return SamplingParams(
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        max_new_tokens=settings.max_new_tokens,
    )


def _record(
    number: int, own: Sequence[OwnGroup], rewards: Sequence[Sequence[float]], **seconds: float
) -> RoundRecord:
    """A round's record; what belongs to training is 0, or None where 0 would be a claim."""
    known: dict[str, Any] = {
        field.name: None if "None" in str(field.type) else 0 for field in fields(RoundRecord)
    }
    lengths = [answer.num_tokens for group in own for answer in group.answers]
    scores = [reward for group in rewards for reward in group]
    cut = [a.finish_reason.value == "length" for group in own for a in group.answers]
    known |= seconds | {"round": number, "groups_local": len(own), "tokens_generated": sum(lengths)}
    if lengths:
        known |= {
            "reward_local": sum(scores) / len(scores),
            "completion_mean_length": sum(lengths) / len(lengths),
            "completion_min_length": min(lengths),
            "completion_max_length": max(lengths),
            "completion_clipped_ratio": sum(cut) / len(cut),
        }
    return RoundRecord(**known)


def _load(path: Path) -> tuple[int, Progress]:
    try:
        document = json.loads(path.read_text())
        return int(document["round"]), Progress.from_json(document["progress"])
    except FileNotFoundError:
        return 0, Progress()
    except (OSError, ValueError, LookupError, TypeError):
        # Spoilt: new questions must not repeat old ones, so count from the clock.
        return int(time.time()), Progress()


def _save(path: Path, round_number: int, progress: Progress) -> None:
    state = {"round": round_number, "progress": progress.to_json()}
    write_atomically(path, json.dumps(state).encode())
