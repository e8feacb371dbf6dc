"""`shoal debug scores`, and the orders about one peer: block, unblock, protect."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from shoal.debug.node import Answer, RunningNode, Tell
from shoal.layout import duration, peer_name, print_table, table
from shoal_ipc import messages as m

_DONE = {
    "block": "blocked: cut off, and refused from now on",
    "unblock": "unblocked: it starts again as a stranger",
    "protect": "protected: its points cost it nothing",
    "unprotect": "no longer protected: its points count again",
}


def add_peer(parser: argparse.ArgumentParser) -> None:
    """Add whom the order is about."""
    parser.add_argument("peer", metavar="PEER", help="a peer id, or its end as tables show it")


def add_protected(parser: argparse.ArgumentParser) -> None:
    """Add whom to protect, and `--off`."""
    add_peer(parser)
    parser.add_argument("--off", action="store_true", help="end the protection")


def order(node: RunningNode, arguments: argparse.Namespace, _tell: Tell) -> Iterator[Answer]:
    """Give one order; yield what the node holds of the peer after it. Raises NodeRefused."""
    action = m.ControlAction(arguments.view)
    if getattr(arguments, "off", False):
        action = m.ControlAction.UNPROTECT
    meant = node.ask("scores", peer=arguments.peer)["scores"][0]["peer_id"]
    node.order(action, meant)
    shown = node.ask("scores", peer=meant)
    yield {
        "schema_version": shown["schema_version"],
        "action": str(action),
        "peer": shown["scores"][0],
    }


def show_order(console: Console, answer: dict[str, Any]) -> None:
    """Say what has been done."""
    console.print(f"{answer['peer']['peer_id']} is {_DONE[answer['action']]}", soft_wrap=True)


def show_scores(console: Console, view: dict[str, Any]) -> None:
    """Every peer of whom something is held, the worst first."""
    rows = table(
        *("peer", "points", "merit", "drawn", "reports", "for", "state"), below=("for", "state")
    )
    for row in view["scores"]:
        rows.add_row(
            peer_name(console, row["peer_id"]),
            f"{row['score']:.1f}",
            f"{row['merit']:.2f}",
            f"{row['sampling_weight']:.2f}",
            f"{row['reports']:.0f}",
            ", ".join(f"{cause} {points:.0f}" for cause, points in row["points"].items()) or "-",
            _state(row),
        )
    print_table(console, rows, "nothing is held of anybody")
    if view["refused"]:
        refused = ", ".join(f"{count} {why}" for why, count in view["refused"].items())
        console.print(f"connections refused before their handshake: {refused}")


def _state(row: dict[str, Any]) -> str:
    words = [word for word in ("blocked", "protected", "connected") if row[word]]
    if row["banned_s"] is not None:
        words.append(f"banned for {duration(row['banned_s'])}")
    return ", ".join(words) or "-"
