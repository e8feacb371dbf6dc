"""Is it learning? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.view.answers import Answers
from shoal.view.model import FamilyShown, LearningFindingShown, LearningShown
from shoal.view.reading import name, part, real, rows, text, whole

_HELD_OUT = "held_out/pass@1"


def learning_of(answers: Answers) -> LearningShown:
    """Return the second block; without a trainer one that says nothing."""
    status = answers.status or {}
    trainer = part(status, "trainer")
    learning = part(trainer, "learning")
    held_out = real(part(trainer, "held_out"), "pass@1")
    marks = list(_marks(answers))
    return LearningShown(
        state=text(learning, "state"),
        says=text(learning, "says"),
        round=whole(status, "round"),
        reward_own=real(trainer, "reward_local"),
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


def _marks(answers: Answers) -> Iterator[float]:
    for event in answers.metrics:
        if (mark := real(event, _HELD_OUT)) is not None:
            yield mark
