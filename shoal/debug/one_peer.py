"""`shoal debug block`, `unblock` and `protect`: actions on one peer."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from rich.console import Console

from shoal.json_output import PeerAction
from shoal.view.node import Answer, RunningNode, Tell
from shoal_ipc import messages as m
from shoal_ipc.answers.form import read, to_json
from shoal_ipc.answers.peer import Scores

_DONE: Final = {
    "block": "blocked: disconnected, and refused from now on",
    "unblock": "unblocked: it starts again as an unknown peer",
    "protect": "protected: its points have no consequences",
    "unprotect": "no longer protected: its points count again",
}


def add_peer(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the peer."""
    parser.add_argument(
        "peer", metavar="PEER", help="a peer id, or its last characters as in tables"
    )


def add_protected(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the peer, and `--off`."""
    add_peer(parser)
    parser.add_argument("--off", action="store_true", help="end the protection")


def order(node: RunningNode, arguments: argparse.Namespace, _tell: Tell) -> Iterator[Answer]:
    """Send an action; yield the node's record of the peer afterwards. Raises NodeRefused."""
    action = m.ControlAction(arguments.view)
    if getattr(arguments, "off", False):
        action = m.ControlAction.UNPROTECT
    meant = node.ask("scores", peer=arguments.peer)["scores"][0]["peer_id"]
    node.order(action, meant)
    (after,) = read(Scores, node.ask("scores", peer=meant), shown=False).scores
    yield to_json(PeerAction(action=action.value, peer=after))


def show_order(console: Console, answer: PeerAction) -> None:
    """Print what was done."""
    console.print(f"{answer.peer.peer_id} is {_DONE[answer.action]}", soft_wrap=True)
