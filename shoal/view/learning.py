"""Is it learning? Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from shoal.view.answers import Answers
from shoal.view.model import FamilyShown, LearningFindingShown, LearningShown
from shoal.view.reading import name, part, real, rows, text, whole

_HELD_OUT = "held_out/pass@1"
_LATEST = 20
"""Rounds in a mean of own rewards, as the trainer's."""


def learning_of(answers: Answers) -> LearningShown:
    """Return the second block; without a trainer one that says nothing."""
    status = answers.status or {}
    trainer = part(status, "trainer")
    learning = part(trainer, "learning")
    held_out = real(part(trainer, "held_out"), "pass@1")
    marks = list(_marks(answers))
    round_number, reward_own = whole(status, "round"), real(trainer, "reward_local")
    if answers.down_since_unix is not None:
        # Its status may be of an earlier end: a node that is killed leaves none.
        round_number, reward_own = _played(answers) or (round_number, reward_own)
    return LearningShown(
        state=text(learning, "state"),
        says=text(learning, "says"),
        round=round_number,
        reward_own=reward_own,
        reward_start=real(trainer, "reward_start"),
        held_out=held_out if held_out is not None else (marks[-1] if marks else None),
        held_out_start=marks[0] if marks else None,
        findings=tuple(
            LearningFindingShown(
                check=text(one, "check"),
                state=text(one, "state"),
                since=whole(one, "since"),
                says=text(one, "says"),
                do=text(one, "do"),
                example=text(one, "example"),
            )
            for one in rows(learning, "findings")
        ),
        families=tuple(
            FamilyShown(
                name=name(one, "name"),
                reward=real(one, "reward"),
                reward_start=real(one, "reward_start"),
                groups=whole(one, "groups"),
            )
            for one in rows(answers.ledger, "families")
        ),
    )


def _played(answers: Answers) -> tuple[int, float | None] | None:
    """Return the latest round on disk, and the mean own reward of the latest twenty."""
    events = [event for event in answers.metrics if event.get("event") == "round"]
    if not events:
        return None
    rewards = [real(event, "reward_local") for event in events]
    latest = [one for one in rewards if one is not None][-_LATEST:]
    return whole(events[-1], "round"), fmean(latest) if latest else None


def _marks(answers: Answers) -> Iterator[float]:
    for event in answers.metrics:
        if (mark := real(event, _HELD_OUT)) is not None:
            yield mark
