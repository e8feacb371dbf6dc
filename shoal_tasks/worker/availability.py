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
from shoal_tasks.worker.batching import CallFailure, WorkerCall
from shoal_tasks.worker.process import Pipes
from shoal_tasks.worker.worker_session import WorkerSession

R = TypeVar("R")

RETRY_AFTER_S: Final = 2 * WorkerLimits().request_timeout_seconds
"""Seconds before an unavailable server is tried again. Each try may block its caller for
`WorkerLimits.request_timeout_seconds`."""

log = logging.getLogger(__name__)


class ServiceSession(WorkerSession):
    """A session with the worker of one server or judge, which may be unavailable."""

    def __init__(self, families: Sequence[FamilySpec], limits: WorkerLimits, pipes: Pipes) -> None:
        super().__init__(families, limits, pipes)
        self._what = "judge" if self.is_of_a_judge else "server"
        self._names = ", ".join(spec.name for spec in families)
        self._unavailable_until = -1.0
        self._why = ""

    async def request(self, call: WorkerCall[R]) -> list[R] | CallFailure:
        """Send one call. Raises only `ServerUnavailable`, at once while the server is unavailable.

        An unavailable judge cannot score, but its family's questions are still generated.
        """
        is_needed = not self.is_of_a_judge or call.message["op"] == "score"
        if is_needed and self.pipes.now() < self._unavailable_until:
            raise ServerUnavailable(self._why, self.worker_key, was_contacted=False)
        await self.bring_up()
        results = await self._mark_on_failure(super().request(call))
        if isinstance(results, CallFailure):
            work = "it takes" if self.is_of_a_judge else "its games take"
            self._mark_unavailable(f"{work} too long, or its worker ended", RETRY_AFTER_S)
        if is_needed and self._why:
            log.warning("%s: its %s is available again", self._names, self._what)
            self._why = ""
        return results

    @property
    def needs_a_start(self) -> bool:
        """True if a worker is needed and is down or past its time, and its server is available."""
        is_in_use = self._is_up and not self._is_spent
        return not (self.is_of_a_judge or is_in_use or self.pipes.now() < self._unavailable_until)

    async def bring_up(self) -> None:
        """Start the worker. Raises only `ServerUnavailable`."""
        await self._mark_on_failure(super().bring_up(), was_contacted=False)

    async def _mark_on_failure(
        self, work: Coroutine[Any, Any, R], *, was_contacted: bool = True
    ) -> R:
        try:
            return await work
        except FamilyError as error:
            await self.stop()
            self._mark_unavailable(str(error), float("inf"), was_contacted=was_contacted)
        except WorkerUnavailable as error:
            self._mark_unavailable(str(error), RETRY_AFTER_S, was_contacted=was_contacted)

    def _mark_unavailable(
        self, why: str, seconds: float, *, was_contacted: bool = True
    ) -> NoReturn:
        if why != self._why:
            log.warning("%s: skipped, its %s is unavailable: %s", self._names, self._what, why)
        self._why = why
        self._unavailable_until = self.pipes.now() + seconds
        raise ServerUnavailable(why, self.worker_key, was_contacted=was_contacted)


def build_sessions(
    families: Sequence[FamilySpec], limits: WorkerLimits, new_pipes: Callable[[], Pipes]
) -> dict[str, WorkerSession]:
    """Return the worker sessions that these families need, by `FamilySpec.worker_key`.

    Most families share one worker. Families with unit tests share another, and every user file,
    OpenEnv server and judge has its own. The shared worker comes first, if there is one.
    """
    found: dict[str, WorkerSession] = {}
    for worker_key in sorted(dict.fromkeys(spec.worker_key for spec in families), key=bool):
        there = [spec for spec in families if spec.worker_key == worker_key]
        own = limits.of_a_judge() if there[0].is_local else limits
        is_here = there[0].runs_code or there[0].runs_user_code
        if there[0].runs_code:
            own = limits.of_tests(max(int(str(one.config["test_seconds"])) for one in there))
        kind = WorkerSession if not worker_key or is_here else ServiceSession
        found[worker_key] = kind(there, own, new_pipes())
    return found
