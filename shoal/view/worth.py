"""Is it worth it? Benefit from other nodes, and cost. No I/O of its own."""

from __future__ import annotations

import math
from dataclasses import replace

from shoal.layout import local_time
from shoal.view.folder_follower import LatestAnswers
from shoal.view.model import Benefit, Kind
from shoal.view.table import COST, GAINS, facts_of
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import Status
from shoal_ipc.answers.words import duration


def worth_of(answers: LatestAnswers, *, kind: Kind) -> Benefit:
    """Return the fourth block."""
    status, last_hour = answers.status or Status(), (answers.ledger or Ledger()).last_hour
    root = replace(answers, status=status)
    return Benefit(
        message=_says(answers, status) if kind == "node" else "",
        last_hour=last_hour,
        gains=facts_of(GAINS, root, "page") if kind == "node" else (),
        costs=facts_of(COST, root, "page"),
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
