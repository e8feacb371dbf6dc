"""The debug views by name, and the type of each answer.

The first line of a type's docstring is the view's help; docs/debug.md says more.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from shoal_ipc.answers.doctor import Doctor
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import Buffer, Fetch, RolloutsView, Status
from shoal_ipc.answers.peer import Peers, Refusals, Scores
from shoal_ipc.answers.tasks import Tasks

VIEWS: Final = MappingProxyType[str, type[Any]](
    {
        "status": Status,
        "peers": Peers,
        "scores": Scores,
        "refusals": Refusals,
        "buffer": Buffer,
        "ledger": Ledger,
        "fetch": Fetch,
        "rollouts": RolloutsView,
        "tasks": Tasks,
        "doctor": Doctor,
    }
)


def help_of(kind: type) -> str:
    """Return a view's help: the first line of its type's docstring, for use in a list."""
    line = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
    return line[:1].lower() + line[1:]
