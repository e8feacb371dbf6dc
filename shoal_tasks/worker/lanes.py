"""The workers of a client: one for most families, and one for each OpenEnv server and judge.
Sans-IO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.away import ServerConversation
from shoal_tasks.worker.conversation import Conversation


def conversations(
    families: Sequence[FamilySpec], limits: WorkerLimits, clock: Callable[[], float]
) -> dict[str, Conversation]:
    """Return the talks with the workers that these families need, by `FamilySpec.lane`.

    The first is that of the families without a server or judge, where there are such.
    """
    found: dict[str, Conversation] = {}
    if here := [spec for spec in families if not spec.lane]:
        found[""] = Conversation(here, limits)
    for lane in dict.fromkeys(spec.lane for spec in families if spec.lane):
        there = [spec for spec in families if spec.lane == lane]
        own = limits.of_a_judge() if there[0].is_local else limits
        found[lane] = ServerConversation(there, own, clock=clock)
    return found
