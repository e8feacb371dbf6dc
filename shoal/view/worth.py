"""Is it worth it? What came from others, beside what it costs. No I/O of its own."""

from __future__ import annotations

import math

from shoal.layout import duration, local_time, size
from shoal.view.asking import LatestAnswers
from shoal.view.model import Kind, Worth
from shoal.view.publishers import with_short_ids
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import Status
from shoal_ipc.answers.peer import CostView


def worth_of(answers: LatestAnswers, *, kind: Kind) -> Worth:
    """Return the fourth block."""
    status = answers.status or Status()
    return Worth(
        says=_says(answers, status) if kind == "node" else "",
        lately=(answers.ledger or Ledger()).lately,
        cost=status.cost,
        judge_score=None if status.judge is None else status.judge.mean_score,
    )


def _says(answers: LatestAnswers, status: Status) -> str:
    """Say what was learnt from others: of late, else over the run, else that there is nothing."""
    is_down = answers.down_since_unix is not None
    ledger = answers.ledger or Ledger()
    lately = ledger.lately
    if lately.others_signal_share is not None:
        percent = math.floor(100 * lately.others_signal_share + 0.5)  # as the page, half up
        window = duration(lately.window_s)
        at = local_time(ledger.at_ms)
        until = f"until {at}" if at else "before it stopped"
        when = f"{window} {until}" if is_down else f"last {window}"
        rate = None if is_down else status.cost.bytes_in_s
        cost = "" if rate is None else f" ({rate / 1000:.1f} KB/s received)"
        look = f". Look: {with_short_ids(status.one_network)}" if status.one_network else ""
        return f"In the {when}, {percent}% of the training signal came from other nodes{cost}{look}"
    listed = sum(one.trained for one in ledger.publishers if not one.own)
    if trained := max(status.groups_external_used or 0, listed):
        return f"Over the whole run {trained} groups of others were trained on, none of late"
    if not is_down:
        return "Too early to say: nothing of others was trained on yet"
    if answers.ledger is None:
        return "What it learnt from others is not on record here"
    return "Nothing of others was trained on before it stopped"


def flows(cost: CostView) -> str:
    """Return bytes a second, and over which time they were measured."""
    found = ", ".join(
        f"{rate / 1000:.1f} KB/s {way}"
        for way, rate in (("in", cost.bytes_in_s), ("out", cost.bytes_out_s))
        if rate is not None
    )
    return f"{found} (last {duration(cost.window_s)})" if found and cost.window_s else found


def used(cost: CostView) -> str:
    """Return what each process uses."""
    return ", ".join(
        f"{name} {one.cpu or 0.0:.0%} of a core and {size(one.rss_bytes or 0)}"
        for name, one in cost.processes.items()
        if one is not None
    )


def on_disk(cost: CostView) -> str:
    """Return what the data directory occupies; empty where that is not known."""
    return "" if cost.disk_bytes is None else f"{size(cost.disk_bytes)} on disk"
