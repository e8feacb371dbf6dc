"""Batches that gave numbers which are not finite, set aside for a person to look at.

    data directory/quarantine.jsonl      one JSON object a step, the newest MAX_ENTRIES kept

Groups named there are never trained on again. Text in it is other people's: do not run it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from shoal_base.files import write_atomically
from shoal_wire.types import PublishedGroup, Task

log = logging.getLogger(__name__)

QUARANTINE_FILE = "quarantine.jsonl"
MAX_ENTRIES = 100  # a guess: more is not read by a person
MAX_SUSPECTS = 64  # groups of a step; a guess above any usual round
MAX_COMPLETIONS = 16  # of a group; twice the default
MAX_CHARACTERS = 200
"""Most characters kept of each completion: with the counts above, about a megabyte in all for
common batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A group that was in a step which was not taken."""

    publisher: str | None
    """Peer id; None for an own group."""
    group_id: str | None
    """Hex; None, as the next, for an own group."""
    batch_id: str | None
    policy_version: int | None
    family: str
    seed: int
    index: int
    tokens: tuple[int, ...]
    """Length of each completion by the own tokenizer."""
    texts: tuple[str, ...] = ()
    """The start of each external completion."""


def suspect(
    task: Task, completions: Sequence[Sequence[int]], source: PublishedGroup | None
) -> Suspect:
    """Describe a group; `source` is where an external one came from."""
    texts = () if source is None else source.group.completions[:MAX_COMPLETIONS]
    return Suspect(
        publisher=None if source is None else source.publisher,
        group_id=None if source is None else source.group_id.hex(),
        batch_id=None if source is None else source.batch_id.hex(),
        policy_version=None if source is None else source.policy.policy_version,
        family=task.family,
        seed=task.seed,
        index=task.index,
        tokens=tuple(map(len, completions))[:MAX_COMPLETIONS],
        texts=tuple(completion.text[:MAX_CHARACTERS] for completion in texts),
    )


class Quarantine:
    """The quarantine file. An entry that cannot be written is logged; training continues."""

    def __init__(self, path: Path, *, max_entries: int = MAX_ENTRIES) -> None:
        self._path = path
        self._max_entries = max_entries

    def add(self, *, round_number: int, blame: str, suspects: Sequence[Suspect]) -> None:
        """Write down one step that was not taken, and say so in the log."""
        publishers = sorted({one.publisher or "this node" for one in suspects})
        log.warning(
            "round %d: an update was not finite (blame: %s) and is left out; groups by %s",
            round_number,
            blame,
            ", ".join(publishers) or "nobody",
        )
        entry = {
            "round": round_number,
            "blame": blame,
            "publishers": publishers,
            "groups": [asdict(one) for one in suspects[:MAX_SUSPECTS]],
        }
        try:
            self._write([*self.lines()[1 - self._max_entries :], json.dumps(entry)])
        except OSError as error:
            log.warning("quarantine not written: %s", error.strerror)

    def lines(self) -> list[str]:
        """Return the entries that the file holds, oldest first."""
        try:
            text = self._path.read_text(errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.split("\n") if line]

    def _write(self, lines: Sequence[str]) -> None:
        lines = lines[-self._max_entries :]
        write_atomically(self._path, "".join(f"{line}\n" for line in lines).encode())
