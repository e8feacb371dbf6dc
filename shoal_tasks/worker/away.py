"""The talk with a worker that plays on an OpenEnv server, which may hang, go or change. Sans-IO.

    in reach ──the server is away, or its worker does not answer──> away for a while ──> asked again
        └─────its environment does not repeat itself──────────────> refused until the end

Such a worker has a process of its own, so whatever its server does costs nobody else. While it is
away every call fails at once, as `ServerAway`: no verdict follows from it, and no reward.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar

from shoal_tasks.errors import FamilyError, ServerAway, WorkerUnavailable
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.conversation import Conversation, Steps
from shoal_tasks.worker.plan import Call, Failure

R = TypeVar("R")

AWAY_S: Final = 30.0
"""A server that could not be used is asked again after so long: each time, whoever asks may wait
for `WorkerLimits.request_timeout_seconds`."""

log = logging.getLogger(__name__)


class ServerConversation(Conversation):
    """A client's conversation with the worker of one server, which may be away."""

    def __init__(
        self,
        families: Sequence[FamilySpec],
        limits: WorkerLimits,
        *,
        clock: Callable[[], float],
    ) -> None:
        """`clock` counts seconds."""
        super().__init__(families, limits)
        self._server = families[0].path
        self._names = ", ".join(spec.name for spec in families)
        self._clock = clock
        self._away_until = -1.0
        self._why = ""

    def request(self, call: Call[R]) -> Steps[list[R] | Failure]:
        """Ask the worker. Raises `ServerAway` alone, at once while the server is away."""
        if self._clock() < self._away_until:
            raise ServerAway(self._why, self._server)
        try:
            results = yield from super().request(call)
        except FamilyError as error:
            yield from self.stop()
            self._leave(str(error), float("inf"))
        except WorkerUnavailable as error:
            self._leave(str(error), AWAY_S)
        if isinstance(results, Failure):
            self._leave("its games take too long, or its worker ended", AWAY_S)
        if self._why:
            log.warning("%s: its server is back", self._names)
            self._why = ""
        return results

    def _leave(self, why: str, seconds: float) -> NoReturn:
        if why != self._why:
            log.warning("%s is left out, for its server: %s", self._names, why)
        self._why = why
        self._away_until = self._clock() + seconds
        raise ServerAway(why, self._server)
