"""Table of `shoal debug`: views of the node, orders to it, a bug report.

A view of `shoal_ipc.answers.views` needs no row here: it is asked for once and printed by
`shoal.debug.table`. A row says what is otherwise with it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from shoal.debug import bugreport, one_peer, sentences, status, table
from shoal.debug.node import Answer, RunningNode, Tell
from shoal.printed import BugReport, Order, Ping
from shoal_ipc.answers.views import VIEWS as ANSWERS
from shoal_ipc.answers.views import help_of
from shoal_p2p.data_dir import LAST_STATUS_FILE
from shoal_p2p.rollouts.ledger_file import LEDGER_FILE

Flags = Callable[[argparse.ArgumentParser], None]


def _no_flags(_parser: argparse.ArgumentParser) -> None:
    """Every view has `--data-dir`, `--json` and `--config`; most have nothing else."""


def _once(node: RunningNode, arguments: argparse.Namespace, _tell: Tell) -> Iterator[Answer]:
    """Ask for the view once, without options."""
    yield node.ask(arguments.view)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One view."""

    kind: type[Any]
    """Type of its answer."""
    help: str = ""
    """Empty: the first line of its type's docstring."""
    show: Callable[[Console, Any], None] = table.show
    """Shows an answer to people; programs get it as it came."""
    flags: Flags = _no_flags
    """Adds what it takes beyond every view's flags."""
    answers: Callable[[RunningNode, argparse.Namespace, Tell], Iterator[Answer]] = _once
    """Asks for it, given its flags."""
    failed: Callable[[Any], bool] = lambda _answer: False
    """Returns whether an answer ends the command with code 1."""
    left: str = ""
    """The file from which `--last` has it."""

    @property
    def says(self) -> str:
        """Return its help."""
        return self.help or help_of(self.kind)


def _order(says: str, flags: Flags = one_peer.add_peer) -> View:
    """Return an order about one peer."""
    return View(
        kind=Order,
        help=says,
        show=one_peer.show_order,
        flags=flags,
        answers=one_peer.order,
    )


VIEWS: Final = {
    **{name: View(kind=kind) for name, kind in ANSWERS.items()},
    "status": View(
        kind=ANSWERS["status"],
        show=status.show,
        flags=status.add_last,
        answers=status.present_or_left,
        left=LAST_STATUS_FILE,
    ),
    "refusals": View(kind=ANSWERS["refusals"], show=sentences.refusals),
    "ledger": View(
        kind=ANSWERS["ledger"],
        flags=status.add_last,
        answers=status.present_or_left,
        left=LEDGER_FILE,
    ),
    "doctor": View(
        kind=ANSWERS["doctor"],
        show=sentences.doctor,
        failed=lambda answer: answer.state == "bad",
    ),
    "rollouts": View(
        kind=ANSWERS["rollouts"],
        show=sentences.rollouts,
        flags=sentences.add_follow,
        answers=sentences.latest,
    ),
    "ping": View(
        kind=Ping,
        show=one_peer.show_ping,
        flags=one_peer.add_ping,
        answers=one_peer.ping_all,
        failed=lambda answer: not answer.answered,
    ),
    "block": _order("refuse a peer until unblocked, whatever it does"),
    "unblock": _order("lift a block or ban of a peer, and forget what led to it"),
    "protect": _order(
        "never ban a peer or drop it for its points (--off ends it)", one_peer.add_protected
    ),
    "bugreport": View(
        kind=BugReport,
        show=bugreport.show,
        flags=bugreport.add_out,
        answers=bugreport.write,
    ),
}
"""Views by the word that asks for each."""
