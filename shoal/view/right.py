"""Am I all right? One sentence, from doctor's findings and what the trainer does. Pure."""

from __future__ import annotations

from shoal.layout import duration
from shoal.view.answers import Answer, Answers
from shoal.view.model import FindingShown, Health, Kind, PhaseShown, RightShown
from shoal.view.reading import name, part, real, rows, text, whole

_GRAVITY = ("ok", "warn", "bad")
_STUCK = ("broken", "diverged", "misconfigured")


def right_of(answers: Answers, *, at_unix: float, kind: Kind) -> RightShown:
    """Return the first block."""
    status = answers.status or {}
    phase = _phase(part(status, "trainer"))
    if answers.down_since_unix is not None:
        return _down(answers, at_unix, phase)
    findings = tuple(_findings(answers))
    worst = max(findings, key=lambda one: _GRAVITY.index(one.state), default=None)
    state: Health = "ok"
    says, do = _activity(answers, kind), ""
    if worst is not None and worst.state != "ok":
        state = "bad" if worst.state == "bad" else "warn"
        says, do = f"{says}. {worst.check}: {worst.says}", worst.do
    return RightShown(
        state=state,
        says=says,
        do=do,
        findings=findings,
        phase=phase,
        uptime_s=real(status, "uptime_s"),
        down_since_unix=None,
    )


def _down(answers: Answers, at_unix: float, phase: PhaseShown | None) -> RightShown:
    since = answers.down_since_unix or None
    ago = "" if since is None else f"down for {duration(max(0.0, at_unix - since))}: "
    return RightShown(
        state="down",
        says=f"{ago}no node answers here",
        do="start it again: it goes on where it stopped" if since else "start one",
        findings=(),
        phase=phase,
        uptime_s=None,
        down_since_unix=since,
    )


def _findings(answers: Answers) -> list[FindingShown]:
    """Doctor's findings; before it has answered once, what the status has to say."""
    found = [
        FindingShown(
            check=text(one, "check"),
            state=str(one.get("state")),
            says=text(one, "says"),
            do=text(one, "do"),
        )
        for one in rows(answers.doctor, "findings")
        if one.get("state") in _GRAVITY
    ]
    return found or list(_of_status(answers.status or {}))


def _of_status(status: Answer) -> list[FindingShown]:
    found = []
    trainer = part(status, "trainer")
    if trainer.get("paused"):
        found.append(("trainer", "bad", f"paused: {text(trainer, 'paused')}", "make room"))
    elif trainer.get("state") in _STUCK:
        why = text(trainer, "last_error") or "see the node's log"
        found.append(("trainer", "bad", f"{trainer['state']}: {why}", "mend that"))
    for one in rows(part(trainer, "learning"), "findings"):
        found.append(("learning", str(one.get("state")), text(one, "says"), text(one, "do")))
    return [
        FindingShown(check=check, state=state if state in _GRAVITY else "warn", says=says, do=do)
        for check, state, says, do in found
    ]


def _activity(answers: Answers, kind: Kind) -> str:
    """Say what it is at: ``Learning with 3 others``."""
    status = answers.status or {}
    peers = whole(status, "peers")
    connected = f"{peers} connected" if peers else "nobody connected"
    if kind != "node":
        return f"{'Meeting point' if kind == 'bootstrap' else 'Judge'}, {connected}"
    state = text(part(status, "trainer"), "state")
    doing = {"training": "Learning", "connected": "Learning", "generating": "Answering"}.get(state)
    others = _num_others(answers)
    if doing and others:
        return f"{doing} with {others} other{'' if others == 1 else 's'}"
    if doing:
        return f"{doing}, {connected}" if peers else f"{doing} alone"
    said = {"disabled": "Without a trainer", "loading": "Loading the model", "": "Starting"}
    return f"{said.get(state, f'Trainer {state}')}, {connected}"


def _num_others(answers: Answers) -> int:
    """Of those connected, who has answered anything: a bootstrap does not."""
    connected = {name(one, "peer_id") for one in rows(answers.peers, "peers")}
    answered = {
        name(one, "peer_id")
        for one in rows(answers.contributions, "peers")
        if whole(one, "contributed")
    }
    return len(connected & answered)


def _phase(trainer: Answer) -> PhaseShown | None:
    progress = part(trainer, "progress")
    error = text(trainer, "last_error") or None
    if not trainer.get("phase") and error is None:
        return None
    return PhaseShown(
        name=text(trainer, "phase") or text(trainer, "state"),
        since_s=real(progress, "seconds"),
        round=whole(progress, "round") if progress.get("round") is not None else None,
        done=whole(progress, "done"),
        of=whole(progress, "of"),
        left_s=real(progress, "left_s"),
        last_error=error,
    )
