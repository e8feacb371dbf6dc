"""What happened beside the rounds, and may be why the curve turns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal.view.answers import Answer, Answers
from shoal.view.model import MarkShown
from shoal.view.publishers import short
from shoal.view.reading import real, rows, text, whole
from shoal_base.visible import visible_name

MAX_MARKS = 256
_MAX_ABOUT = 4


def marks_of(answers: Answers) -> tuple[MarkShown, ...]:
    """Return the marks, the oldest first."""
    found = [_mark(row) for row in rows(answers.ledger, "marks")]
    return tuple(found[-MAX_MARKS:])


def _mark(row: Answer) -> MarkShown:
    kind, count = text(row, "kind"), max(1, whole(row, "count"))
    return MarkShown(
        kind=kind,
        round=max(0, whole(row, "round")),
        at_unix=(real(row, "at_ms") or 0.0) / 1000,
        count=count,
        says=_says(kind, count, list(_about(row.get("about")))),
    )


def _says(kind: str, count: int, about: list[str]) -> str:
    often = f" {count} times" if count > 1 else ""
    match kind:
        case "started":
            return f"this node started{often}"
        case "trainer":
            return f"the trainer started again{often}"
        case "model":
            return f"another model: {', '.join(about)}"
        case "joined" | "left":
            named = [short(one) for one in about]
            if count <= len(named) == 1:
                return f"{named[0]} {kind}"
            more = f" and {count - len(named)} more" if count > len(named) else ""
            return f"{count} {kind}: {', '.join(named)}{more}"
        case _:
            return kind


def _about(value: Any) -> Iterator[str]:
    for one in value[:_MAX_ABOUT] if isinstance(value, list) else ():
        if isinstance(one, str):
            yield visible_name(one)
