"""Sessions with workers that depend on an OpenEnv server or a judge, which may be unavailable.

    available ──server or worker does not answer──> unavailable for `RETRY_AFTER_S` ──> retried
        └──────its environment is not deterministic──> refused until this process ends

Each such worker has a process of its own, so a slow server or judge delays no other family. While
it is unavailable, every call fails at once with `ServerUnavailable`. That is neither a verdict nor
a reward.
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
"""Seconds before an unavailable server is tried again. Each try may block its caller for
`WorkerLimits.request_timeout_seconds`."""

log = logging.getLogger(__name__)


class ServerConversation(WorkerSession):
    """A session with the worker of one server or judge, which may be unavailable."""

    def __init__(self, families: Sequence[FamilySpec], limits: WorkerLimits, pipes: Pipes) -> None:
        super().__init__(families, limits, pipes)
        self._what = "judge" if self.is_of_a_judge else "server"
        self._names = ", ".join(spec.name for spec in families)
        self._away_until = -1.0
        self._why = ""

    async def request(self, call: WorkerCall[R]) -> list[R] | CallFailure:
        """Send one call. Raises only `ServerUnavailable`, at once while the server is unavailable.

        An unavailable judge cannot score, but its family's questions are still generated.
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
            log.warning("%s: its %s is available again", self._names, self._what)
            self._why = ""
        return results

    @property
    def needs_a_start(self) -> bool:
        """True if a worker is needed and is down or past its time, and its server is available."""
        is_in_use = self._is_up and not self._is_spent
        return not (self.is_of_a_judge or is_in_use or self.pipes.now() < self._away_until)

    async def bring_up(self) -> None:
        """Start the worker. Raises only `ServerUnavailable`."""
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
            log.warning("%s: skipped, its %s is unavailable: %s", self._names, self._what, why)
        self._why = why
        self._away_until = self.pipes.now() + seconds
        raise ServerUnavailable(why, self.lane, was_asked=was_asked)


def conversations(
    families: Sequence[FamilySpec], limits: WorkerLimits, new_pipes: Callable[[], Pipes]
) -> dict[str, WorkerSession]:
    """Return the worker sessions that these families need, by `FamilySpec.lane`.

    Most families share one worker. Families with unit tests share another, and every user file,
    OpenEnv server and judge has its own. The shared worker comes first, if there is one.
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
