"""Who learnt what from whom, and how old it was: what rounds say of the groups they trained on.

outcomes of a round ─▶ by publisher and family: [node, family, groups, signal, rounds of age]
own groups          ─▶ the round in which each was made, so that others' readers know its age
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from shoal_ipc import messages as m
from shoal_lab.experiment.plan import NOBODY
from shoal_wire.types import GroupId, PeerId

Row = list[Any]
"""Publisher (or NOBODY of the plan), family, groups, their |advantage|, their ages in rounds."""


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
            publisher = node if not one.publisher else self._index_of.get(one.publisher, NOBODY)
            made = self._made.get(one.group_id, number)
            for place, more in enumerate((1, one.signal, number - made)):
                found[publisher, one.family][place] += more
        return [
            [*key, int(groups), float(f"{signal:.6g}"), int(age)]
            for key, (groups, signal, age) in sorted(found.items())
        ]
