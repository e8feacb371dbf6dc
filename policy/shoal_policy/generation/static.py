"""Answers from a server whose weights stay its own: to the policy that trains, text of others.

They are encoded anew by the policy's tokenizer and weighed like external text; what the server says
of its own tokens belongs to none of them and is dropped.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from shoal_policy.generation.remote import RemoteGenerator
from shoal_policy.generation.requests import RemoteError
from shoal_policy.generation.seam import Asking
from shoal_policy.model.loading import ModelError
from shoal_policy.model.prompting import reencode
from shoal_policy.rollouts import Origin, OwnGroup, public_model_name
from shoal_wire.types import Digest, PolicyInfo

log = logging.getLogger(__name__)


class Static:
    """A `Generator` over a server of OpenAI's protocol."""

    server_difference = None

    def __init__(self, remote: RemoteGenerator, model: str) -> None:
        """`model` is the server's name of what answers."""
        self._remote = remote
        self._author = PolicyInfo(
            model_name=public_model_name(model), tokenizer_digest=Digest(b""), policy_version=0
        )

    def answer(self, asking: Asking) -> list[OwnGroup]:
        """See `Generator`. Raises ModelError when the server refuses and never has answered."""
        try:
            groups = self._remote.answer(asking.questions, asking.on_step)
        except RemoteError as error:
            raise ModelError(str(error)) from None
        if self._remote.why_none:
            log.warning("%s; this round has the groups of others alone", self._remote.why_none)
        read = [reencode(asking.policy, group) for group in groups]
        return [
            replace(group, origin=Origin.ANOTHER, author=self._author)
            for group in read
            if group is not None
        ]
