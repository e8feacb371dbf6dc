"""Answers from a server whose weights stay its own: to the policy that trains, text of others.

They are encoded anew by the policy's tokenizer and weighed like external text; what the server says
of its own tokens belongs to none of them and is dropped.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.remote import RemoteGenerator
from shoal_policy.generation.requests import ServerRefusedError
from shoal_policy.model.loading import ModelError
from shoal_policy.model.prompting import reencode
from shoal_policy.model.retokenized import game_reading
from shoal_policy.rollouts import Origin, OwnGroup
from shoal_tasks.turns import split_messages
from shoal_tasks.types import PlayRequest
from shoal_wire.types import Completion

log = logging.getLogger(__name__)


class OpenAIGenerator:
    """A `Generator` over a server of OpenAI's protocol."""

    server_logp_difference = None

    def __init__(self, remote: RemoteGenerator) -> None:
        self._remote = remote

    def answer(self, asking: GenerationRequest) -> list[OwnGroup]:
        """See `Generator`. Raises ModelError when the server refuses and never has answered."""
        try:
            groups = self._remote.answer(asking.questions, asking.on_step, asking.play)
        except ServerRefusedError as error:
            raise ModelError(str(error)) from None
        if self._remote.why_none:
            log.warning("%s; this round has the groups of others alone", self._remote.why_none)
        read = [_read(asking, group) for group in groups]
        return [
            replace(group, origin=Origin.ANOTHER, author=self._remote.author)
            for group in read
            if group is not None
        ]


def _read(asking: GenerationRequest, group: OwnGroup) -> OwnGroup | None:
    """Another model's answers in the policy's own tokens; None with fewer than two of them."""
    if not group.question.max_turns:
        return reencode(asking.policy, group)
    requests = [
        PlayRequest(task=group.question.coordinates, messages=split_messages(one.text))
        for one in group.answers
    ]
    read = []
    for one, play in zip(group.answers, asking.play(requests), strict=True):
        completion = Completion(
            text=one.text, num_tokens=one.num_tokens, finish_reason=one.finish_reason
        )
        room = asking.policy.max_positions
        found = game_reading(asking.policy, completion, play.observations, room)
        if found is not None:
            read.append(replace(one, ids=found.ids, said=found.said))
    return replace(group, answers=tuple(read)) if len(read) > 1 else None
