"""Requests a question from the judge every few rounds, answers it once, and records the score.

    due ─▶ requested ─▶ question: one answer from the policy ─▶ submitted ─▶ score

One short request to the node per round, answered at once; an unavailable judge costs nothing more.
One answer at the temperature of training (pass@1, SAPO section 6); no random state of the training
changes, and nothing is shared or trained on.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from shoal_base.waits import POLL_S
from shoal_ipc import messages as m
from shoal_ipc.answers.node import WINDOW
from shoal_policy.generation.local import NonFiniteError, generate
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.prompting import text_prompt_ids
from shoal_policy.node.link import NodeLink
from shoal_policy.rollouts import public_model_name
from shoal_settings.schema import Settings
from shoal_wire.types import SamplingParams

log = logging.getLogger(__name__)

EVERY = 10
"""Rounds between two questions: one node must not use up a judge's quota."""
_LAST_SECONDS = 3.0  # a judge on loopback answers within; a guess


class JudgeClient:
    """The client of a judge for one policy."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        link: NodeLink,
        sampling: SamplingParams,
        *,
        seed: int,
        system: Callable[[str], str] = lambda _family: "",
        is_game: Callable[[str], bool] = lambda _family: False,
        every: int = EVERY,
    ) -> None:
        """`system` returns a family's system message, used for the judge's question as in training.
        `is_game` returns whether a family's environment replies: a judge asks once and cannot play,
        so such questions are not answered.

        `every` is the number of rounds between two questions.
        """
        self._system, self._is_game = system, is_game
        self._every = 0 if settings.judge == "none" else every
        self._uses_external_groups = settings.external > 0
        self._policy = policy
        self._link = link
        self._sampling = sampling
        self._seed = seed
        self._wanted = False
        self._answer: m.JudgeAnswer | None = None
        self._scores: deque[float] = deque(maxlen=WINDOW)

    def after_round(self, round_number: int, policy_version: int) -> dict[str, Any] | None:
        """Take the next step towards a score, if one is due; return a new score's metrics."""
        if not self._every:
            return None
        if round_number % self._every == 0 and self._answer is None:
            self._wanted = True
        if self._wanted:
            self._ask(round_number, policy_version)
        return self._score() if self._answer is not None else None

    def wait_for_score(
        self, round_number: int, policy_version: int, should_stop: Callable[[], bool]
    ) -> dict[str, Any] | None:
        """Wait a few seconds after the last round for a pending score; return its metrics."""
        deadline = time.monotonic() + _LAST_SECONDS
        while (self._wanted or self._answer) and time.monotonic() < deadline and not should_stop():
            if self._wanted:
                self._ask(round_number, policy_version)
            elif (figures := self._score()) is not None:
                return figures
            time.sleep(POLL_S)
        return None

    def _ask(self, round_number: int, policy_version: int) -> None:
        challenge, again = self._link.call_judge(m.JudgeAsk(), m.JudgeChallenge)
        self._wanted = again
        if challenge is not None:
            self._answer = self._answered(challenge, round_number, policy_version)

    def _score(self) -> dict[str, Any] | None:
        answer = self._answer
        assert answer is not None
        score, again = self._link.call_judge(answer, m.JudgeScore)
        if not again:
            self._answer = None
        if score is None:
            return None
        self._scores.append(score.score)
        return {
            "round": answer.round,
            "judge/score": score.score,
            "judge/mean_score": sum(self._scores) / len(self._scores),
            "judge/number": score.number,
        }

    def _answered(
        self, challenge: m.JudgeChallenge, round_number: int, policy_version: int
    ) -> m.JudgeAnswer | None:
        """Return one answer; None if the policy cannot answer such a question."""
        if self._is_game(challenge.family):
            log.info("no answer to the judge: %s is a game of several turns", challenge.family)
            return None
        text = f"{self._seed}/{round_number}/judge".encode()
        generator = torch.Generator()
        generator.manual_seed(int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1)
        try:
            prompt = text_prompt_ids(
                *(self._policy, challenge.family, challenge.question),
                tagged=challenge.tagged,
                system=self._system(challenge.family),
            )
            [[sample]] = generate(
                self._policy,
                [prompt],
                num_completions=1,
                params=self._sampling,
                generator=generator,
            )
        except (ModelError, NonFiniteError, ValueError) as error:
            # The question may exceed the model's positions.
            log.warning("no answer to the judge's question: %s", error)
            return None
        return m.JudgeAnswer(
            challenge_id=challenge.challenge_id,
            text=sample.text,
            finish_reason=sample.finish_reason,
            round=round_number,
            policy_version=policy_version,
            model_name=public_model_name(self._policy.name),
            uses_external_groups=self._uses_external_groups,
        )
