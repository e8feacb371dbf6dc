"""Parts of answers as text, the same in the trainer's log, `debug`, `watch` and the page. Pure."""

from __future__ import annotations

from shoal_ipc.answers.node import Progress


def duration(seconds: float) -> str:
    """Format a duration for people: ``2 min 5 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def doing(phase: str, progress: Progress | None) -> str:
    """Return what a trainer does: ``round 3: generating, 3 of 8, for 5.0 s, ~9.0 s left``."""
    one = progress or Progress()
    where = "" if one.round is None else f"round {one.round}: "
    counted = f", {one.done} of {one.total}" if one.total else ""
    since = f", for {duration(one.elapsed_s)}" if one.elapsed_s else ""
    left = "" if one.remaining_s is None else f", ~{duration(one.remaining_s)} left"
    return f"{where}{phase}{counted}{since}{left}"


def short_topic(topic: str) -> str:
    """Return a topic with the swarm's digest shortened to 12 characters."""
    parts = topic.split("/")
    return "/".join(part[:12] if len(part) == 64 else part for part in parts)
