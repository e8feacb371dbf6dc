"""From what a node has answered to what is shown of it. Pure.

answers ─▶ right · learning · marks · publishers · worth · said · refused · now ─▶ `Shown`
"""

from __future__ import annotations

import shlex

from shoal.view.answers import Answer, Answers
from shoal.view.learning import learning_of
from shoal.view.marks import marks_of
from shoal.view.model import Kind, NowShown, SaidShown, Shown, SwarmShown
from shoal.view.publishers import me_of, publishers_of, short
from shoal.view.reading import name, part, real, rows, text, whole
from shoal.view.refused import refused_of
from shoal.view.right import right_of
from shoal.view.worth import worth_of
from shoal_base.visible import visible_name

MAX_SAID = 50


def build(answers: Answers, *, data_dir: str, at_unix: float, program: str = "shoal") -> Shown:
    """Return what is shown of the node in `data_dir`.

    `program` is what starts shoal here, for commands to copy.
    """
    status = answers.status or {}
    kind = kind_of(answers)
    publishers = publishers_of(answers) if kind == "node" else ()
    learning = learning_of(answers)
    return Shown(
        kind=kind,
        name=visible_name(data_dir.rstrip("/").rpartition("/")[2] or data_dir),
        peer_id=me_of(answers),
        short=short(me_of(answers)),
        data_dir=visible_name(data_dir),
        at_unix=at_unix,
        swarm=SwarmShown(
            name=name(part(status, "swarm"), "name"), digest=name(part(status, "swarm"), "digest")
        ),
        right=right_of(answers, at_unix=at_unix, kind=kind),
        learning=learning,
        marks=marks_of(answers),
        publishers=publishers,
        worth=worth_of(answers, kind=kind),
        said=_said(answers),
        refused=refused_of(answers),
        now=_now(answers, kind, data_dir, program),
    )


def kind_of(answers: Answers) -> Kind:
    """Return what sort of peer it is."""
    role = (answers.status or {}).get("role")
    return role if role in ("bootstrap", "judge") else "node"


def _said(answers: Answers) -> tuple[SaidShown, ...]:
    """The latest groups, the newest first."""
    found = list(rows(answers.rollouts, "rollouts"))[-MAX_SAID:]
    return tuple(_said_row(one) for one in reversed(found))


def _said_row(one: Answer) -> SaidShown:
    used = one.get("used")
    completions = one.get("completions")
    return SaidShown(
        id=name(one, "group_id"),
        family=name(one, "family"),
        publisher=name(one, "publisher"),
        mine=one.get("own") is True,
        round=whole(one, "round"),
        reward=real(one, "reward"),
        used=used if isinstance(used, bool) else None,
        why_unused=text(one, "why_unused"),
        completions=len(completions) if isinstance(completions, list) else 0,
    )


def _now(answers: Answers, kind: Kind, data_dir: str, program: str) -> tuple[NowShown, ...]:
    """Commands that show more, or do something, for this peer."""
    where = f"--data-dir {shlex.quote(data_dir)}"
    if answers.down_since_unix is not None:
        left = {
            "status": ("what it left when it ended", answers.status),
            "ledger": ("from whom it had learnt", answers.ledger),
        }
        return (
            NowShown(says="start it again", command=f"{program} {kind} {where}"),
            *(
                NowShown(says=says, command=f"{program} debug {view} --last {where}")
                for view, (says, known) in left.items()
                if kind == "node" and known is not None
            ),
        )
    invite = NowShown(says="invite others", command=f"{program} invite {where}")
    doctor = NowShown(says="look for what is wrong", command=f"{program} debug doctor {where}")
    if kind != "node":
        return (invite, doctor)
    return (
        invite,
        doctor,
        NowShown(says="read what was said", command=f"{program} debug rollouts {where}"),
        NowShown(says="keep what was said", command=f"{program} export {where}"),
    )
