"""Generates through a server with its own, fixed weights; its text counts as external.

Answers are re-encoded by the policy's tokenizer and trained on like external text. The server's
log-probabilities belong to other tokens and are dropped.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.remote import RemoteGenerator
from shoal_policy.generation.requests import ServerRefusedError
from shoal_policy.model.loading import ModelError
from shoal_policy.model.prompting import reencode
from shoal_policy.model.retokenized import retokenize_game
from shoal_policy.rollouts import Origin, OwnGroup
from shoal_tasks.turns import split_messages
from shoal_tasks.types import PlayRequest
from shoal_wire.types import Completion

log = logging.getLogger(__name__)


class OpenAIGenerator:
    """A `Generator` through a server with OpenAI's API."""

    server_logp_difference = None

    def __init__(self, remote: RemoteGenerator) -> None:
        self._remote = remote

    def generate(self, request: GenerationRequest) -> list[OwnGroup]:
        """See `Generator`. Raises ModelError if the server refuses and has never answered."""
        try:
            groups = self._remote.generate(request.questions, request.on_step, request.play)
        except ServerRefusedError as error:
            raise ModelError(str(error)) from None
        if self._remote.failure:
            log.warning("%s; this round trains on external groups only", self._remote.failure)
        return [
            replace(_read(request, group), origin=Origin.ANOTHER, author=self._remote.author)
            for group in groups
        ]


def _read(request: GenerationRequest, group: OwnGroup) -> OwnGroup:
    """Return another model's answers in own tokens; a game that has no exact ones has none."""
    if not group.question.max_turns:
        return reencode(request.policy, group)
    requests = [
        PlayRequest(task=group.question.coordinates, messages=split_messages(one.text))
        for one in group.answers
    ]
    read = []
    for one, play in zip(group.answers, request.play(requests), strict=True):
        completion = Completion(
            text=one.text, num_tokens=one.num_tokens, finish_reason=one.finish_reason
        )
        max_tokens = request.policy.max_positions
        found = retokenize_game(request.policy, completion, play.observations, max_tokens)
        if found is not None:
            one = replace(one, ids=found.ids, completion_positions=found.completion_positions)
        read.append(one)
    return replace(group, answers=tuple(read))
