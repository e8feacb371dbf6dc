"""Is it worth it? What came from others, beside what it costs. Pure."""

from __future__ import annotations

import math

from shoal.layout import duration
from shoal.view.answers import Answers
from shoal.view.model import WorthShown
from shoal.view.reading import part, real, whole


def worth_of(answers: Answers) -> WorthShown:
    """Return the fourth block."""
    status = answers.status or {}
    cost, lately = part(status, "cost"), part(answers.ledger, "lately")
    processes = part(cost, "processes")
    node, trainer = part(processes, "node"), part(processes, "trainer")
    share = real(lately, "others_signal_share")
    window_s = real(lately, "window_s") or 0.0
    bytes_in_s = real(cost, "bytes_in_s")
    return WorthShown(
        says=_says(share, window_s, bytes_in_s),
        others_signal_share=share,
        groups_with_signal_others=whole(lately, "groups_others"),
        tokens_not_generated=whole(lately, "tokens_others"),
        bytes_in_s=bytes_in_s,
        bytes_out_s=real(cost, "bytes_out_s"),
        cpu_node=real(node, "cpu"),
        cpu_trainer=real(trainer, "cpu"),
        rss_node=whole(node, "rss_bytes") or None,
        rss_trainer=whole(trainer, "rss_bytes") or None,
        disk_bytes=whole(cost, "disk_bytes") or None,
        judge_score=real(part(status, "judge"), "mean_score"),
        window_s=window_s,
    )


def _says(share: float | None, window_s: float, bytes_in_s: float | None) -> str:
    if share is None:
        return ""
    cost = "" if bytes_in_s is None else f", for {bytes_in_s / 1000:.1f} KB/s"
    percent = math.floor(100 * share + 0.5)  # as the page rounds it, half up
    return (
        f"In the last {duration(window_s)}, {percent}% of what the model learnt from was found by "
        f"others{cost}"
    )
