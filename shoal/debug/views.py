"""The views and actions of `shoal debug`, and the bug report.

A view of `shoal_ipc.answers.views` needs no row here: it is requested once and printed by
`shoal.view.text`. A row overrides parts of that.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from shoal.debug import bugreport, one_peer, sentences
from shoal.json_output import BugReport, PeerAction
from shoal.view import text
from shoal.view.blocks import parts_of
from shoal.view.build import view_of
from shoal.view.folder_follower import LatestAnswers
from shoal.view.model import Figures
from shoal.view.node import Answer, RunningNode, Tell
from shoal.view.table import STATUS, facts_of
from shoal_ipc.answers.doctor import Doctor
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import RolloutsView, Status
from shoal_ipc.answers.peer import Refusals
from shoal_ipc.answers.views import VIEWS as ANSWERS
from shoal_ipc.answers.views import help_of


def _once(node: RunningNode, arguments: argparse.Namespace, _tell: Tell) -> Iterator[Answer]:
    """Request the view once, without options."""
    yield node.ask(arguments.view)


@dataclass(frozen=True, slots=True)
class View:
    """One view."""

    kind: type[Any]
    """Type of its answer."""
    show: Callable[[Console, Any], None] = text.show
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


def _add_last(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--last", action="store_true", help="show the last status of a node that has stopped"
    )


def _present_or_left(
    node: RunningNode, arguments: argparse.Namespace, tell: Tell
) -> Iterator[Answer]:
    """Request a view; with `--last`, read what a stopped node stored in its folder."""
    yield node.left(arguments.view, tell) if arguments.last else node.ask(arguments.view)


def _show_status(console: Console, answer: Status) -> None:
    """Print the node at a glance."""
    facts = facts_of(STATUS, view_of(LatestAnswers(status=answer)), "status")
    text.print_parts(console, [Figures(facts=facts)])


def _show_refusals(console: Console, answer: Refusals) -> None:
    """Print the count of each reason, then the latest refusals with their remedies."""
    parts = parts_of("refused", view_of(LatestAnswers(refusals=answer)), "debug")
    text.print_parts(console, parts, at_unix=answer.at_ms / 1000)


def _order(says: str, flags: Callable[..., None] = one_peer.add_peer) -> View:
    """Return an action on one peer."""
    return View(PeerAction, one_peer.show_order, flags, one_peer.order, help=says)


VIEWS: Final = {
    **{name: View(kind) for name, kind in ANSWERS.items()},
    "status": View(Status, _show_status, _add_last, _present_or_left),
    "refusals": View(Refusals, _show_refusals),
    "ledger": View(Ledger, text.show, _add_last, _present_or_left),
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
