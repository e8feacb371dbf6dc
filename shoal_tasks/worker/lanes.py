"""The workers of a client: one for most families, and one for each OpenEnv server. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.away import ServerConversation
from shoal_tasks.worker.conversation import Conversation


def conversations(
    families: Sequence[FamilySpec], limits: WorkerLimits, clock: Callable[[], float]
) -> dict[str, Conversation]:
    """Return the talks with the workers that these families need, by `plan.Call.server`.

    The first is that of the families without a server, where there are such.
    """
    found: dict[str, Conversation] = {}
    if here := [spec for spec in families if not spec.is_on_a_server]:
        found[""] = Conversation(here, limits)
    for server in dict.fromkeys(spec.path for spec in families if spec.is_on_a_server):
        there = [spec for spec in families if spec.is_on_a_server and spec.path == server]
        found[server] = ServerConversation(there, limits, clock=clock)
    return found
