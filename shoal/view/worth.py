"""Is it worth it? Benefit from other nodes, and cost. No I/O of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable

from shoal.layout import local_time, number, size
from shoal.view.folder_follower import LatestAnswers
from shoal.view.model import Benefit, Fact, Kind
from shoal_ipc.answers.learning import LastHour, Ledger
from shoal_ipc.answers.node import Status
from shoal_ipc.answers.peer import CostView
from shoal_ipc.answers.words import duration


def worth_of(answers: LatestAnswers, *, kind: Kind) -> Benefit:
    """Return the fourth block."""
    status, last_hour = answers.status or Status(), (answers.ledger or Ledger()).last_hour
    return Benefit(
        message=_says(answers, status) if kind == "node" else "",
        last_hour=last_hour,
        gains=_gains(last_hour, status) if kind == "node" else (),
        costs=costs_of(status.cost),
    )


def _says(answers: LatestAnswers, status: Status) -> str:
    """Return the share of the signal from other nodes: recent, otherwise over the whole run."""
    is_down = answers.down_since_unix is not None
    ledger = answers.ledger or Ledger()
    last_hour = ledger.last_hour
    if last_hour.external_signal_share is not None:
        percent = math.floor(100 * last_hour.external_signal_share + 0.5)  # as the page, half up
        window = duration(last_hour.window_s)
        at = local_time(ledger.at_ms)
        until = f"until {at}" if at else "before it stopped"
        when = f"{window} {until}" if is_down else f"last {window}"
        rate = None if is_down else status.cost.bytes_in_s
        cost = "" if rate is None else f" ({rate / 1000:.1f} KB/s received)"
        return f"In the {when}, {percent}% of the training signal came from other nodes{cost}"
    listed = sum(one.groups_trained for one in ledger.publishers if not one.is_local)
    if trained := max(status.groups_external_used or 0, listed):
        return f"Over the whole run {trained} groups of other nodes were trained on, none recently"
    if not is_down:
        return "Too early to say: no group of another node was trained on yet"
    if answers.ledger is None:
        return "This folder has no record of training on external groups"
    return "No group of another node was trained on before it stopped"


def _gains(last_hour: LastHour, status: Status) -> tuple[Fact, ...]:
    rows = []
    if last_hour.external_signal_share is not None:
        rows = [
            Fact(name="groups with signal", value=str(last_hour.groups_external)),
            Fact(name="tokens saved", value=str(last_hour.tokens_external)),
        ]
    if status.judge is not None and status.judge.mean_score is not None:
        rows.append(Fact(name="judge's score", value=number(status.judge.mean_score)))
    return tuple(rows)


def costs_of(cost: CostView) -> tuple[Fact, ...]:
    """Return what a peer costs its machine, in words."""
    rates = {"in": cost.bytes_in_s, "out": cost.bytes_out_s}
    found = {
        direction: f"{rate / 1000:.1f} KB/s"
        for direction, rate in rates.items()
        if rate is not None
    }
    if found and cost.window_s:
        found["measured over"] = duration(cost.window_s)
    for name, one in cost.processes.items():
        if one is not None:
            found[name] = f"{one.cpu or 0.0:.0%} CPU and {size(one.rss_bytes or 0)}"
    if cost.disk_bytes is not None:
        found["on disk"] = size(cost.disk_bytes)
    return tuple(Fact(name=name, value=value) for name, value in found.items())


def in_words(rows: Iterable[Fact]) -> str:
    """Return rows as a line of a terminal."""
    return ", ".join(f"{one.name} {one.value}" for one in rows)
