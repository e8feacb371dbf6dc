"""Checks of the trainer, of its learning, and of the groups received. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shoal_ipc.answers.doctor import Finding, State
from shoal_ipc.answers.held_out import held_out_words
from shoal_p2p.buffer.types import DropCause, InsertOutcome
from shoal_p2p.ipc.checks.seen import Seen, found

_FIRST_GROUPS_S: Final = 300.0
"""Uptime in seconds after which a node with peers should have received groups. A guess: other nodes
may load a model meanwhile."""

_BROKEN: Final = ("broken", "diverged", "misconfigured")
_WAITING: Final = ("waiting", "stopped")


def trainer(seen: Seen) -> Iterator[Finding]:
    """The trainer's state."""
    if (one := seen.status.trainer) is None:
        return
    state: State = "ok"
    why = remedy = ""
    if one.paused:
        state, why = "bad", one.paused
        remedy = "free disk space: training then continues by itself, and nothing is lost"
    elif one.state in _BROKEN:
        state, why = "bad", seen.facts.trainer_error
        remedy = "fix that (the node's log has more), then start the node again"
    elif one.state in _WAITING:
        state, why = "warn", seen.facts.trainer_error
        remedy = "it ended and will be started again; the node's log has more"
    yield found("trainer", f"{one.state}: {why}" if why else one.state, state, remedy)


def learning(seen: Seen) -> Iterator[Finding]:
    """The trainer's view of its own learning, and whether external groups reach it."""
    one = seen.status.trainer
    if one is not None and (words := held_out_words(one.held_out_initial, one.held_out)):
        yield found("learning", f"held-out {words}: right answers to questions it never trains on")
    report = None if one is None else one.learning
    if report is None or not report.state:
        return
    for alarm in report.findings:
        example = f"; {alarm.example}" if alarm.example else ""
        yield found(
            "learning",
            f"{alarm.message}, since round {alarm.since_round}{example}",
            alarm.state,
            alarm.remedy,
        )
    if not report.findings:
        yield found("learning", report.message)
    received, too_old = seen.status.groups_received or 0, _too_old(seen)
    is_judged = report.state != "early" and seen.facts.uses_external_groups
    # The last groups of peers that have left become too old as well.
    if is_judged and report.external_sampled == 0 and seen.status.peers and 2 * too_old > received:
        yield found(
            "learning",
            f"external groups are not used: {too_old} of {received} became too old, and the "
            "trainer has sampled none recently",
            "warn",
            "see `clock` above and `buffer` below",
        )


def _too_old(seen: Seen) -> int:
    """External groups that became too old before the trainer sampled them."""
    dropped = {} if seen.status.buffer is None else seen.status.buffer.dropped
    return sum(dropped.get(cause, 0) for cause in (InsertOutcome.TOO_OLD, DropCause.EXPIRED))


def sources(seen: Seen) -> Iterator[Finding]:
    """Check whether one network provides more of the signal than it should."""
    if warning := seen.status.dominant_network:
        yield found(
            "sources",
            warning,
            "warn",
            "their share stays limited; block a peer that you do not know with "
            "`shoal debug block PEER`, and connect to more peers",
        )


def buffer(seen: Seen) -> Iterator[Finding]:
    """Check whether external groups arrive in the replay buffer."""
    status = seen.status
    if status.buffer is None:
        return
    received = status.groups_received or 0
    is_due = (status.uptime_s or 0.0) >= _FIRST_GROUPS_S
    empty = not received and status.peers > 0 and is_due
    remedy = "peers are connected but send no groups: see verdicts in `shoal status`, and `mesh`"
    yield found(
        "buffer",
        f"{status.buffer.groups} of {status.buffer.capacity_groups} external groups, "
        f"{received} received",
        "warn" if empty else "ok",
        remedy if empty else "",
    )
