"""`shoal debug block`, `unblock`, `protect` and `ping`: orders about one peer, pings to it."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Final

from rich.console import Console

from shoal.printed import Order, Ping
from shoal.view.node import Answer, RunningNode, Tell
from shoal_ipc import messages as m
from shoal_ipc.answers.form import read, to_json
from shoal_ipc.answers.peer import Pinged, Scores
from shoal_settings.parser import whole

_DONE: Final = {
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
    (after,) = read(Scores, node.ask("scores", peer=meant), shown=False).scores
    yield to_json(Order(action=action.value, peer=after))


def show_order(console: Console, answer: Order) -> None:
    """Say what has been done."""
    console.print(f"{answer.peer.peer_id} is {_DONE[answer.action]}", soft_wrap=True)


def add_ping(parser: argparse.ArgumentParser) -> None:
    """Add whom to ping, and how often."""
    parser.add_argument(
        "peer", metavar="PEER", help="a peer id, its end, or an address to connect to"
    )
    parser.add_argument("--count", type=whole(1), default=4, metavar="N", help="pings (4)")
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between (1)"
    )


def ping_all(node: RunningNode, arguments: argparse.Namespace, tell: Tell) -> Iterator[Answer]:
    """Ping as often as was asked for, telling of each; yield the summary."""
    times: list[float] = []
    last_error, peer_id, sent = "", None, 0
    for number in range(arguments.count):
        if number:
            time.sleep(arguments.interval)
        answer = read(Pinged, node.ask("ping", peer=arguments.peer), shown=False)
        peer_id = answer.peer_id or peer_id
        if answer.ms is None:
            last_error = answer.error
        else:
            times.append(answer.ms)
        tell(answer.error or f"answer from {peer_id} in {answer.ms:.2f} ms")
        if answer.mistaken:
            break
        sent += 1
    yield to_json(
        Ping(
            peer=arguments.peer,
            peer_id=peer_id,
            sent=sent,
            answered=len(times),
            loss=round(1 - len(times) / max(1, sent), 4),
            min_ms=min(times, default=None),
            median_ms=round(statistics.median(times), 3) if times else None,
            max_ms=max(times, default=None),
            times_ms=tuple(times),
            last_error=last_error,
        )
    )


def show_ping(console: Console, answer: Ping) -> None:
    """The summary of a row of pings; none where nobody could be meant."""
    if not answer.sent:
        return
    console.print(f"{answer.sent} sent, {answer.answered} answered, {answer.loss:.0%} lost")
    if answer.answered:
        shown = (f"{name} {getattr(answer, f'{name}_ms'):.2f}" for name in ("min", "median", "max"))
        console.print(f"{', '.join(shown)} ms")


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (value := float(text)) <= 3600:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 to 3600")
