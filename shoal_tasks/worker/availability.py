"""The talk with a worker that plays on an OpenEnv server, or whose function judges. Either may
hang, go or change.

    in reach ──the server is away, or its worker does not answer──> away for a while ──> asked again
        └─────its environment does not repeat itself──────────────> refused until the end

Such a worker has a process of its own, so whatever its server or judge does costs nobody else.
While it is away every call fails at once, as `ServerUnavailable`: no verdict follows from it, and
no reward.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NoReturn, TypeVar

from shoal_tasks.errors import FamilyError, ServerUnavailable, WorkerUnavailable
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.plan import CallFailure, WorkerCall
from shoal_tasks.worker.process import Pipes
from shoal_tasks.worker.worker_session import WorkerSession

R = TypeVar("R")

AWAY_S: Final = 2 * WorkerLimits().request_timeout_seconds
"""A server that could not be used is asked again after so long: each time, whoever asks may wait
for `WorkerLimits.request_timeout_seconds`."""

log = logging.getLogger(__name__)


class ServerConversation(WorkerSession):
    """A client's conversation with the worker of one server or judge, which may be away."""

    def __init__(self, families: Sequence[FamilySpec], limits: WorkerLimits, pipes: Pipes) -> None:
        super().__init__(families, limits, pipes)
        self._what = "judge" if self.is_of_a_judge else "server"
        self._names = ", ".join(spec.name for spec in families)
        self._away_until = -1.0
        self._why = ""

    async def request(self, call: WorkerCall[R]) -> list[R] | CallFailure:
        """Ask the worker. Raises `ServerUnavailable` alone, at once while the server is away.

        A judge that is away is asked for no grade; its family's questions need none.
        """
        is_about_it = not self.is_of_a_judge or call.message["op"] == "score"
        if is_about_it and self.pipes.now() < self._away_until:
            raise ServerUnavailable(self._why, self.lane, was_asked=False)
        await self.bring_up()
        results = await self._left_where_it_fails(super().request(call))
        if isinstance(results, CallFailure):
            work = "it takes" if self.is_of_a_judge else "its games take"
            self._leave(f"{work} too long, or its worker ended", AWAY_S)
        if is_about_it and self._why:
            log.warning("%s: its %s is back", self._names, self._what)
            self._why = ""
        return results

    @property
    def needs_a_start(self) -> bool:
        """True if the worker of a server that is not away is down, or has used up its time."""
        is_in_use = self._is_up and not self._is_spent
        return not (self.is_of_a_judge or is_in_use or self.pipes.now() < self._away_until)

    async def bring_up(self) -> None:
        """Start the worker. Raises `ServerUnavailable` alone."""
        await self._left_where_it_fails(super().bring_up(), was_asked=False)

    async def _left_where_it_fails(
        self, work: Coroutine[Any, Any, R], *, was_asked: bool = True
    ) -> R:
        try:
            return await work
        except FamilyError as error:
            await self.stop()
            self._leave(str(error), float("inf"), was_asked=was_asked)
        except WorkerUnavailable as error:
            self._leave(str(error), AWAY_S, was_asked=was_asked)

    def _leave(self, why: str, seconds: float, *, was_asked: bool = True) -> NoReturn:
        if why != self._why:
            log.warning("%s is left out, for its %s: %s", self._names, self._what, why)
        self._why = why
        self._away_until = self.pipes.now() + seconds
        raise ServerUnavailable(why, self.lane, was_asked=was_asked)


def conversations(
    families: Sequence[FamilySpec], limits: WorkerLimits, new_pipes: Callable[[], Pipes]
) -> dict[str, WorkerSession]:
    """Return the talks with the workers that these families need, by `FamilySpec.lane`: one for
    most families, one for those with unit tests, and one for each user's file, OpenEnv server and
    judge.

    The first is that of the families without a server or judge, where there are such.
    """
    found: dict[str, WorkerSession] = {}
    for lane in sorted(dict.fromkeys(spec.lane for spec in families), key=bool):
        there = [spec for spec in families if spec.lane == lane]
        own = limits.of_a_judge() if there[0].is_local else limits
        is_here = there[0].runs_code or there[0].runs_user_code
        if there[0].runs_code:
            own = limits.of_tests(max(int(str(one.config["test_seconds"])) for one in there))
        kind = WorkerSession if not lane or is_here else ServerConversation
        found[lane] = kind(there, own, new_pipes())
    return found
