"""`shoal debug scores`, and the orders about one peer: block, unblock, protect."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from shoal.debug import tables
from shoal_ipc import messages as m
from shoal_ipc.client import NodeClient

ORDERS = {
    "block": "refuse a peer until unblocked, whatever it does",
    "unblock": "lift a block or ban of a peer, and forget what led to it",
    "protect": "never ban a peer or drop it for its points (--off ends it)",
}
_DONE = {
    "block": "blocked: cut off, and refused from now on",
    "unblock": "unblocked: it starts again as a stranger",
    "protect": "protected: its points cost it nothing",
    "unprotect": "no longer protected: its points count again",
}


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """Add what `name` takes beyond every view's flags."""
    if name in ORDERS:
        parser.add_argument("peer", metavar="PEER", help="a peer id")
    if name == "protect":
        parser.add_argument("--off", action="store_true", help="end the protection")


def order(
    client: NodeClient,
    ask: Callable[[str, dict[str, Any]], dict[str, Any]],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Give one order and return what the node now holds of the peer. Raises NodeRefused."""
    action = m.ControlAction(arguments.view)
    if getattr(arguments, "off", False):
        action = m.ControlAction.UNPROTECT
    client.call(m.Control(action=action, peer_id=arguments.peer), m.Done)
    shown = ask("scores", {"peer": arguments.peer})
    return {
        "schema_version": shown["schema_version"],
        "action": str(action),
        "peer": shown["scores"][0],
    }


def show_order(console: Console, answer: dict[str, Any]) -> None:
    """Say what has been done."""
    console.print(f"{answer['peer']['peer_id']} is {_DONE[answer['action']]}", soft_wrap=True)


def show_scores(console: Console, view: dict[str, Any]) -> None:
    """Every peer of whom something is held, the worst first."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in ("peer", "points", "merit", "drawn", "reports", "for", "state"):
        table.add_column(column, overflow="fold")
    for row in view["scores"]:
        table.add_row(
            tables.peer_name(console, row["peer_id"]),
            f"{row['score']:.1f}",
            f"{row['merit']:.2f}",
            f"{row['sampling_weight']:.2f}",
            f"{row['reports']:.0f}",
            ", ".join(f"{cause} {points:.0f}" for cause, points in row["points"].items()) or "-",
            _state(row),
        )
    if view["scores"]:
        console.print(table)
    else:
        console.print("nothing is held of anybody")
    if view["refused"]:
        refused = ", ".join(f"{count} {why}" for why, count in view["refused"].items())
        console.print(f"connections refused before their handshake: {refused}")


def _state(row: dict[str, Any]) -> str:
    words = [word for word in ("blocked", "protected", "connected") if row[word]]
    if row["banned_s"] is not None:
        words.append(f"banned for {tables.duration(row['banned_s'])}")
    return ", ".join(words) or "-"
