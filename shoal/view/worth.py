"""Is it worth it? What came from others, beside what it costs. Pure."""

from __future__ import annotations

import math

from shoal.layout import duration, local_time, size
from shoal.view.answers import Answer, Answers
from shoal.view.model import Kind, WorthShown
from shoal.view.reading import part, real, rows, whole


def worth_of(answers: Answers, *, kind: Kind) -> WorthShown:
    """Return the fourth block."""
    status = answers.status or {}
    cost, lately = part(status, "cost"), part(answers.ledger, "lately")
    processes = part(cost, "processes")
    node, trainer = part(processes, "node"), part(processes, "trainer")
    return WorthShown(
        says=_says(answers) if kind == "node" else "",
        others_signal_share=real(lately, "others_signal_share"),
        groups_with_signal_others=whole(lately, "groups_others"),
        tokens_not_generated=whole(lately, "tokens_others"),
        bytes_in_s=real(cost, "bytes_in_s"),
        bytes_out_s=real(cost, "bytes_out_s"),
        cpu_node=real(node, "cpu"),
        cpu_trainer=real(trainer, "cpu"),
        rss_node=whole(node, "rss_bytes") or None,
        rss_trainer=whole(trainer, "rss_bytes") or None,
        disk_bytes=whole(cost, "disk_bytes") or None,
        judge_score=real(part(status, "judge"), "mean_score"),
        window_s=real(lately, "window_s") or 0.0,
        cost_window_s=real(cost, "window_s"),
    )


def _says(answers: Answers) -> str:
    """Say what was learnt from others: of late, else over the run, else that there is nothing."""
    is_down = answers.down_since_unix is not None
    lately = part(answers.ledger, "lately")
    if (share := real(lately, "others_signal_share")) is not None:
        percent = math.floor(100 * share + 0.5)  # as the page rounds it, half up
        window = duration(real(lately, "window_s") or 0.0)
        when = f"{window} {_until(answers.ledger)}" if is_down else f"last {window}"
        received = real(lately, "bytes_in")
        cost = "" if received is None else f", for {size(received)} received in that time"
        found = f"In the {when}, {percent}% of what the model learnt from was found by others{cost}"
        one_network = (answers.status or {}).get("one_network")
        return (
            f"{found}. Look: {one_network}"
            if isinstance(one_network, str) and one_network
            else found
        )
    if trained := _trained(answers):
        return f"Over the whole run {trained} groups of others were trained on, none of late"
    if not is_down:
        return "Too early to say: nothing of others was trained on yet"
    if answers.ledger is None:
        return "What it learnt from others is not on record here"
    return "Nothing of others was trained on before it stopped"


def _until(ledger: Answer | None) -> str:
    """Say up to when the numbers of a node that has ended are, in this machine's time."""
    at = local_time(real(ledger or {}, "at_ms") or 0.0)
    return f"until {at}" if at else "before it stopped"


def _trained(answers: Answers) -> int:
    """Groups of others that were trained on, over the run."""
    listed = [one for one in rows(answers.ledger, "publishers") if one.get("own") is not True]
    counted = whole(answers.status or {}, "groups_external_used")
    return max(counted, sum(whole(one, "trained") for one in listed))
