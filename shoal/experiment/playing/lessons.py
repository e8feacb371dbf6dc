"""Who learnt what from whom, and how old it was: rows of a round, from the signed groups it trained on.

    outcomes of a round ─▶ by publisher and family: [node, family, groups, signal, rounds of age]
    own groups          ─▶ the round in which each was made, so that others' readers know its age
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shoal_ipc import messages as m
from shoal_wire.types import GroupId, PeerId

Row = list[Any]
"""Node that answered, family, groups trained on, sum of |advantage|, sum of their ages in rounds."""


class Lessons:
    """One swarm's."""

    def __init__(self, index_of: Mapping[PeerId, int]) -> None:
        """`index_of` are the nodes, by the name under which they sign."""
        self._index_of = index_of
        self._made: dict[GroupId, int] = {}

    def of_round(self, node: int, number: int, outcomes: Iterable[m.GroupOutcome]) -> list[Row]:
        """Return what a node has trained on in a round, by publisher and family."""
        found: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0, 0.0, 0])
        for one in outcomes:
            if not one.publisher and one.group_id:
                self._made[one.group_id] = number
            if one.why_unused:
                continue
            publisher = self._index_of[one.publisher] if one.publisher else node
            made = self._made.get(one.group_id, number)
            for place, more in enumerate((1, one.signal, number - made)):
                found[publisher, one.family][place] += more
        return [
            [*key, int(groups), float(f"{signal:.6g}"), int(age)]
            for key, (groups, signal, age) in sorted(found.items())
        ]


def check(row: Sequence[Any]) -> Row:
    """Return the row as it is read back from a file. Raises ValueError."""
    node, family, groups, signal, age = row
    return [int(node), str(family), int(groups), float(signal), int(age)]
