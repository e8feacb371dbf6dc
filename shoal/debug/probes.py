"""`shoal debug doctor` and `shoal debug ping`: what the network says of a peer, and to it."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from shoal.debug.node import Answer, RunningNode, Tell
from shoal.layout import print_wrapped
from shoal_base.terminal import styled
from shoal_settings.parser import whole

_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


def doctor(console: Console, view: dict[str, Any]) -> None:
    """One line a finding, and below it what to do."""
    for finding in view["findings"]:
        colour = _COLOURS[finding["state"]]
        head = styled((f"{finding['state']:<4}", colour), f"  {finding['check']:<10}  ")
        print_wrapped(console, finding["says"], head=head)
        if finding["do"]:
            print_wrapped(console, finding["do"], head=f"{'':18}→ ")
    counts = [f["state"] for f in view["findings"]]
    console.print(f"{counts.count('bad')} bad, {counts.count('warn')} to look at")


def is_bad(view: dict[str, Any]) -> bool:
    """Whether the doctor has found something that ends the command with code 1."""
    return bool(view["state"] == "bad")


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
        answer = node.ask("ping", peer=arguments.peer)
        peer_id = answer["peer_id"] or peer_id
        if answer["ms"] is None:
            last_error = answer["error"]
        else:
            times.append(answer["ms"])
        tell(answer["error"] or f"answer from {peer_id} in {answer['ms']:.2f} ms")
        if answer.get("mistaken"):
            break
        sent += 1
    yield {
        "schema_version": 1,
        "peer": arguments.peer,
        "peer_id": peer_id,
        "sent": sent,
        "answered": len(times),
        "loss": round(1 - len(times) / max(1, sent), 4),
        "min_ms": min(times, default=None),
        "median_ms": round(statistics.median(times), 3) if times else None,
        "max_ms": max(times, default=None),
        "times_ms": times,
        "last_error": last_error,
    }


def ping(console: Console, view: dict[str, Any]) -> None:
    """The summary of a row of pings; none where nobody could be meant."""
    if not view["sent"]:
        return
    console.print(f"{view['sent']} sent, {view['answered']} answered, {view['loss']:.0%} lost")
    if view["answered"]:
        shown = (f"{name} {view[f'{name}_ms']:.2f}" for name in ("min", "median", "max"))
        console.print(f"{', '.join(shown)} ms")


def is_lost(view: dict[str, Any]) -> bool:
    """Whether no ping was answered."""
    return not view["answered"]


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (value := float(text)) <= 3600:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 to 3600")
