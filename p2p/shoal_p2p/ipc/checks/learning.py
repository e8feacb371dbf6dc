"""Checks of what a node is there for: its trainer, its learning, the groups that come. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shoal_ipc.answers.doctor import Finding, State
from shoal_p2p.buffer.types import DropCause, InsertOutcome
from shoal_p2p.ipc.checks.seen import Seen, found

_BROKEN: Final = ("broken", "diverged", "misconfigured")
_WAITING: Final = ("waiting", "stopped")


def trainer(seen: Seen) -> Iterator[Finding]:
    """The trainer's state."""
    if (one := seen.status.trainer) is None:
        return
    state: State = "ok"
    why = do = ""
    if one.paused:
        state, why = "bad", one.paused
        do = "make room: it goes on by itself, and nothing is lost"
    elif one.state in _BROKEN:
        state, why = "bad", seen.facts.trainer_error
        do = "fix that; the node's log has more; then start the node again"
    elif one.state in _WAITING:
        state, why = "warn", seen.facts.trainer_error
        do = "it ended and will be started again: the node's log has more"
    yield found("trainer", f"{one.state}: {why}" if why else one.state, state, do)


def learning(seen: Seen) -> Iterator[Finding]:
    """The trainer's judgement of its learning, and whether others' groups reach it."""
    said = None if seen.status.trainer is None else seen.status.trainer.learning
    if said is None or not said.state:
        return
    for one in said.findings:
        example = f"; {one.example}" if one.example else ""
        yield found(
            "learning",
            f"{one.message}, since round {one.since_round}{example}",
            one.state,
            one.remedy,
        )
    if not said.findings:
        yield found("learning", said.message)
    received, too_old = seen.status.groups_received or 0, _too_old(seen)
    is_judged = said.state != "early" and seen.facts.uses_external_groups
    # The last groups of peers that have gone grow too old as well.
    if is_judged and said.external_sampled == 0 and seen.status.peers and 2 * too_old > received:
        yield found(
            "learning",
            f"others' groups are passed over: {too_old} of {received} became too old, and the "
            "trainer was given none lately",
            "warn",
            "see the clock above, and buffer below",
        )


def _too_old(seen: Seen) -> int:
    """Groups of others that no trainer drew before they were too old."""
    dropped = {} if seen.status.buffer is None else seen.status.buffer.dropped
    return sum(dropped.get(cause, 0) for cause in (InsertOutcome.TOO_OLD, DropCause.EXPIRED))


def sources(seen: Seen) -> Iterator[Finding]:
    """Check whether one network gives more of the signal than it should."""
    if says := seen.status.dominant_network:
        yield found(
            "sources",
            says,
            "warn",
            "what they give stays limited; if a peer is named that you do not know, end it with "
            "`shoal debug block PEER`, and find more peers",
        )


def buffer(seen: Seen) -> Iterator[Finding]:
    """Groups of others, and whether any came."""
    status = seen.status
    if status.buffer is None:
        return
    received = status.groups_received or 0
    empty = not received and status.peers > 0 and seen.settled
    do = "peers are connected and share nothing: see verdicts in `shoal status`, and mesh"
    yield found(
        "buffer",
        f"{status.buffer.groups} of {status.buffer.capacity_groups} groups of others, "
        f"{received} received",
        "warn" if empty else "ok",
        do if empty else "",
    )
