"""`shoal debug doctor` and `shoal debug ping`: what they print, and their exit codes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Ask the node for a view with options."""

_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


def doctor(console: Console, view: dict[str, Any]) -> None:
    """One line a finding, and below it what to do."""
    for finding in view["findings"]:
        colour = _COLOURS[finding["state"]]
        console.print(
            f"[{colour}]{finding['state']:<4}[/{colour}]  {finding['check']:<10}  ",
            end="",
            soft_wrap=True,
        )
        console.print(finding["says"], markup=False, soft_wrap=True)
        if finding["do"]:
            console.print(f"{'':18}→ {finding['do']}", markup=False, soft_wrap=True)
    counts = [f["state"] for f in view["findings"]]
    console.print(f"{counts.count('bad')} bad, {counts.count('warn')} to look at")


def ping_all(
    ask: Ask, peer: str, *, count: int, interval_s: float, console: Console | None
) -> dict[str, Any]:
    """Ping `count` times, telling each on `console` if there is one; return the summary."""
    times: list[float] = []
    errors: list[str] = []
    peer_id = None
    for number in range(count):
        if number:
            time.sleep(interval_s)
        answer = ask("ping", {"peer": peer})
        peer_id = answer["peer_id"] or peer_id
        if answer["ms"] is None:
            errors.append(answer["error"])
        else:
            times.append(answer["ms"])
        if console is not None:
            text = answer["error"] or f"answer from {peer_id} in {answer['ms']:.2f} ms"
            console.print(text, markup=False, soft_wrap=True)
    return {
        "schema_version": 1,
        "peer": peer,
        "peer_id": peer_id,
        "sent": count,
        "answered": len(times),
        "loss": round(1 - len(times) / count, 4),
        "min_ms": min(times, default=None),
        "median_ms": round(statistics.median(times), 3) if times else None,
        "max_ms": max(times, default=None),
        "times_ms": times,
        "last_error": errors[-1] if errors else "",
    }


def ping(console: Console, view: dict[str, Any]) -> None:
    """The summary of a row of pings."""
    console.print(f"{view['sent']} sent, {view['answered']} answered, {view['loss']:.0%} lost")
    if view["answered"]:
        shown = (f"{name} {view[f'{name}_ms']:.2f}" for name in ("min", "median", "max"))
        console.print(f"{', '.join(shown)} ms")


def failed(view_name: str, view: dict[str, Any]) -> bool:
    """True if the answer means exit code 1: something is bad, or nobody answered a ping."""
    if view_name == "doctor":
        return bool(view["state"] == "bad")
    return view_name == "ping" and not view["answered"]
