"""What was refused? Pure."""

from __future__ import annotations

from shoal.view.answers import Answer, Answers
from shoal.view.model import RefusalShown, RefusedCountShown, RefusedShown
from shoal.view.reading import name, part, real, rows, text, whole


def refused_of(answers: Answers) -> RefusedShown:
    """Return the sixth block; of a peer that keeps no ring its counters alone."""
    if answers.refusals is None:
        return RefusedShown(counts=tuple(_counted(answers.status or {})))
    return RefusedShown(
        counts=tuple(
            RefusedCountShown(
                reason=name(one, "reason"),
                says=text(one, "says"),
                do=text(one, "do"),
                count=whole(one, "count"),
            )
            for one in rows(answers.refusals, "counts")
        ),
        ring=tuple(_refusal(one) for one in rows(answers.refusals, "ring")),
    )


def _refusal(one: Answer) -> RefusalShown:
    return RefusalShown(
        at_unix=(real(one, "at_ms") or 0.0) / 1000,
        reason=name(one, "reason"),
        says=text(one, "says"),
        do=text(one, "do"),
        signer=name(one, "signer"),
        forwarder=name(one, "forwarder"),
        family=name(one, "family"),
        kind=name(one, "kind"),
        times=max(1, whole(one, "times")),
    )


def _counted(status: Answer) -> list[RefusedCountShown]:
    verdicts = part(status, "verdicts")
    counts = [
        RefusedCountShown(reason=str(reason), says=str(reason), do="", count=whole(found, reason))
        for outcome in ("reject", "ignore")
        for found in (part(verdicts, outcome),)
        for reason in found
    ]
    return sorted(counts, key=lambda one: (-one.count, one.reason))
