"""Is it healthy? One sentence, from doctor's findings and the trainer's phase.

No I/O of its own.
"""

from __future__ import annotations

from typing import Final

from shoal.view.folder_follower import LatestAnswers
from shoal.view.model import Kind, NodeHealth
from shoal.view.publishers import with_short_ids
from shoal_ipc.answers.doctor import GRAVITY, Facts, Finding
from shoal_ipc.answers.node import Buffer, Status, TrainerView
from shoal_ipc.answers.peer import Peers
from shoal_ipc.answers.words import doing, duration
from shoal_p2p.ipc.checks import learning
from shoal_p2p.ipc.checks.seen import Seen

_DOING: Final = {"training": "Learning", "connected": "Learning", "generating": "Generating"}
_NOT_YET: Final = {
    "disabled": "Without a trainer",
    "loading": "Loading the model",
    "": "Starting",
}


def right_of(answers: LatestAnswers, *, at_unix: float, kind: Kind) -> NodeHealth:
    """Return the first block."""
    status = answers.status or Status()
    trainer = status.trainer or TrainerView()
    if answers.down_since_unix is not None:
        return _down(answers, at_unix, trainer)
    findings = () if answers.doctor is None else answers.doctor.findings
    if not findings:  # before the first answer of doctor, from the status
        seen = Seen(status=status, facts=Facts(trainer_error=trainer.last_error or ""))
        findings = (*learning.trainer(seen), *learning.learning(seen))
    worst = max(findings, key=lambda one: GRAVITY.index(one.state), default=Finding(state="ok"))
    says = _activity(answers, kind)
    if worst.state != "ok" and worst.check != "peers":  # the activity counts connected peers
        says = f"{says}. {worst.check}: {worst.message}"
    return NodeHealth(
        state=worst.state,
        message=with_short_ids(says),
        remedy="" if worst.state == "ok" else worst.remedy,
        findings=findings,
        phase=doing(trainer.phase, trainer.progress) if trainer.phase else "",
        progress=trainer.progress,
        last_error=trainer.last_error or "",
        uptime_s=status.uptime_s,
        down_since_unix=None,
    )


def _down(answers: LatestAnswers, at_unix: float, trainer: TrainerView) -> NodeHealth:
    since = answers.down_since_unix or None
    again = "run the same command to resume" if since else "start one with `shoal node`"
    ago = "" if since is None else f" (for {duration(max(0.0, at_unix - since))})"
    return NodeHealth(
        state="down",
        message=answers.silent or f"no node answers here{ago}",
        remedy="" if answers.silent else again,
        findings=(),
        phase="",
        progress=None,
        last_error=trainer.last_error or "",
        uptime_s=None,
        down_since_unix=since,
    )


def _activity(answers: LatestAnswers, kind: Kind) -> str:
    """Return the activity, such as ``Learning with 3 other nodes``."""
    status = answers.status or Status()
    connected = f"{status.peers} connected" if status.peers else "no peer connected"
    if kind != "node":
        return f"{'Bootstrap' if kind == 'bootstrap' else 'Judge'}, {connected}"
    state = (status.trainer or TrainerView()).state
    busy, publishers = _DOING.get(state), _num_publishers(answers)
    if busy and publishers:
        return f"{busy} with {publishers} other node{'' if publishers == 1 else 's'}"
    if busy:
        return f"{busy}, {connected}" if status.peers else f"{busy} alone"
    return f"{_NOT_YET.get(state, f'Trainer {state}')}, {connected}"


def _num_publishers(answers: LatestAnswers) -> int:
    """Count the connected peers that publish: a bootstrap does not."""
    connected = {one.peer_id for one in (answers.peers or Peers()).peers}
    rows = (answers.buffer or Buffer()).publishers
    return len(connected & {one.peer_id for one in rows if one.received and not one.is_local})
