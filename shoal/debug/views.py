"""The views and actions of `shoal debug`, and the bug report.

A view of `shoal_ipc.answers.views` needs no row here: it is requested once and printed by
`shoal.debug.table`. A row overrides parts of that.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from shoal.debug import bugreport, one_peer, sentences, status, table
from shoal.json_output import BugReport, PeerAction
from shoal.view.node import Answer, RunningNode, Tell
from shoal_ipc.answers.doctor import Doctor
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import RolloutsView, Status
from shoal_ipc.answers.peer import Refusals
from shoal_ipc.answers.views import VIEWS as ANSWERS
from shoal_ipc.answers.views import help_of
from shoal_p2p.data_dir import LAST_STATUS_FILE
from shoal_p2p.rollouts.ledger_file import LEDGER_FILE


def _once(node: RunningNode, arguments: argparse.Namespace, _tell: Tell) -> Iterator[Answer]:
    """Request the view once, without options."""
    yield node.ask(arguments.view)


@dataclass(frozen=True, slots=True)
class View:
    """One view."""

    kind: type[Any]
    """Type of its answer."""
    show: Callable[[Console, Any], None] = table.show
    """Prints an answer; with --json it is printed unchanged."""
    flags: Callable[[argparse.ArgumentParser], None] = lambda _parser: None
    """Adds flags beyond those of every view."""
    answers: Callable[[RunningNode, argparse.Namespace, Tell], Iterator[Answer]] = _once
    """Requests it, given its flags."""
    failed: Callable[[Any], bool] = lambda _answer: False
    """Returns whether an answer ends the command with code 1."""
    help: str = ""
    """Empty: the first line of its type's docstring."""

    @property
    def says(self) -> str:
        """Return its help."""
        return self.help or help_of(self.kind)


def _order(says: str, flags: Callable[..., None] = one_peer.add_peer) -> View:
    """Return an action on one peer."""
    return View(PeerAction, one_peer.show_order, flags, one_peer.order, help=says)


LEFT: Final = {"status": LAST_STATUS_FILE, "ledger": LEDGER_FILE}
"""Views with `--last`, and the file from which each has it."""
VIEWS: Final = {
    **{name: View(kind) for name, kind in ANSWERS.items()},
    "status": View(Status, status.show, status.add_last, status.present_or_left),
    "refusals": View(Refusals, sentences.refusals),
    "ledger": View(Ledger, table.show, status.add_last, status.present_or_left),
    "doctor": View(
        Doctor,
        sentences.doctor,
        failed=lambda answer: answer.state == "bad",
        help="what is wrong with a node, and what to do about it",
    ),
    "rollouts": View(RolloutsView, sentences.rollouts, sentences.add_follow, sentences.latest),
    "block": _order("refuse a peer until unblocked, whatever it does"),
    "unblock": _order("lift a block or ban of a peer, and forget what led to it"),
    "protect": _order(
        "never ban a peer or drop it for its points (--off ends it)", one_peer.add_protected
    ),
    "bugreport": View(BugReport, bugreport.show, bugreport.add_out, bugreport.write),
}
"""Views by name."""
