"""The views of `shoal debug`, a row each. The node answers one by its method of that name.

A new view is a row here, a method marked `@view` in `p2p/ipc`, and a section of `docs/debug.md`;
`tests/shoal/debug/test_views.py` says which of them is missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console

from p2p.data_dir import LAST_STATUS_FILE
from p2p.rollouts.ledger_file import LEDGER_FILE
from shoal.debug import bugreport, groups, network, peer_orders, probes, status
from shoal.debug.node import Answer, RunningNode, Tell


def _no_flags(_parser: argparse.ArgumentParser) -> None:
    """Every view has `--data-dir`, `--json` and `--config`; most have nothing else."""


def _once(node: RunningNode, arguments: argparse.Namespace, _tell: Tell) -> Iterator[Answer]:
    """Ask for the view once, without options."""
    yield node.ask(arguments.view)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One view."""

    help: str
    show: Callable[[Console, Answer], None]
    """Shows an answer to people; programs get it as it is."""
    flags: Callable[[argparse.ArgumentParser], None] = _no_flags
    """Adds what it takes beyond every view's flags."""
    answers: Callable[[RunningNode, argparse.Namespace, Tell], Iterator[Answer]] = _once
    """Asks for it, given its flags."""
    failed: Callable[[Answer], bool] = lambda _answer: False
    """Whether an answer ends the command with code 1."""
    left: str = ""
    """The file from which `--last` has it."""
    asks: str = ""
    """The node's view that it is made from, where that has another name."""


VIEWS = {
    "status": View(
        help="the node at a glance",
        show=status.status,
        flags=status.add_last,
        answers=status.present_or_last,
        left=LAST_STATUS_FILE,
    ),
    "id": View(help="peer id, key and addresses", show=status.identity),
    "peers": View(
        help="connections: address, direction, latency, agent, topics, score", show=network.peers
    ),
    "scores": View(
        help="what this node holds of every peer, the worst first", show=peer_orders.show_scores
    ),
    "block": View(
        help="refuse a peer until unblocked, whatever it does",
        show=peer_orders.show_order,
        flags=peer_orders.add_peer,
        answers=peer_orders.order,
        asks="scores",
    ),
    "unblock": View(
        help="lift a block or ban of a peer, and forget what led to it",
        show=peer_orders.show_order,
        flags=peer_orders.add_peer,
        answers=peer_orders.order,
        asks="scores",
    ),
    "protect": View(
        help="never ban a peer or drop it for its points (--off ends it)",
        show=peer_orders.show_order,
        flags=peer_orders.add_protected,
        answers=peer_orders.order,
        asks="scores",
    ),
    "mesh": View(help="each topic's mesh, and who else is subscribed", show=network.mesh),
    "refusals": View(
        help="what of others was not taken, why, and what to do", show=network.refusals
    ),
    "topics": View(help="the topics this node is subscribed to", show=network.topics),
    "buffer": View(help="the replay buffer by publisher", show=groups.buffer),
    "contributions": View(
        help="who answers for others: draws against contributions", show=groups.contributions
    ),
    "ledger": View(
        help="from whom the trainer has learnt, and how much",
        show=groups.ledger,
        flags=status.add_last,
        answers=groups.present_or_left,
        left=LEDGER_FILE,
    ),
    "fetch": View(help="how batches came, gaps, and what was given to others", show=groups.fetch),
    "doctor": View(
        help="what is wrong with this node's place in the network",
        show=probes.doctor,
        failed=probes.is_bad,
    ),
    "addresses": View(
        help="where others find this node and its swarm, as peers see it",
        show=network.addresses,
    ),
    "ping": View(
        help="round trips to one peer",
        show=probes.ping,
        flags=probes.add_ping,
        answers=probes.ping_all,
        failed=probes.is_lost,
    ),
    "rollouts": View(
        help="the latest rollouts: question, completions, verified reward",
        show=groups.rollouts,
        flags=groups.add_follow,
        answers=groups.latest,
    ),
    "bugreport": View(
        help="write what a bug report needs into one file, without your keys",
        show=bugreport.show,
        flags=bugreport.add_out,
        answers=bugreport.write,
        asks="status",
    ),
}
"""By the word that asks for it."""
