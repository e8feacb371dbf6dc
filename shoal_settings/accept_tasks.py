"""The setting `accept_tasks`: which tasks that peers share a node takes.

ask                 show each one at the terminal and ask; without a terminal none is taken
none                none
20MB                those of at most 20 MB without code
20MB,words          the same, and the task `words` with its code, or its data set of a hub
20MB,from:12D3Koo…  the same, and what that member offers while the node runs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shoal_settings.key import read_size
from shoal_wire.base58 import is_peer_id_text

ASK: Final = "ask"
NONE: Final = "none"
_FROM: Final = "from:"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRule:
    """The largest tasks that are taken, and the names of those that may hold what it does not
    bound: code, and data sets of a hub."""

    max_bytes: int
    names: frozenset[str]
    authors: frozenset[str] = frozenset()
    """Members whose offers are taken while the node runs."""

    def refusal(self, name: str, num_bytes: int, danger: str = "") -> str:
        """Return why a task is not taken; empty if it is. `danger` is what it holds, in words."""
        if num_bytes > self.max_bytes:
            return f"it has {num_bytes:,} bytes, and --accept-tasks allows {self.max_bytes:,}"
        if danger and name not in self.names:
            return f"{danger}, and --accept-tasks does not name it: add ,{name}"
        return ""


def parse_accept_rule(value: str) -> AcceptRule | None:
    """Return the rule that a setting states; None for `ASK`. Raises ValueError."""
    if value == ASK:
        return None
    if value == NONE:
        return AcceptRule(max_bytes=0, names=frozenset())
    size, *items = (part.strip() for part in value.split(","))
    try:
        max_bytes = read_size(size)
    except ValueError:
        max_bytes = None
    if not isinstance(max_bytes, int) or not all(items):
        raise ValueError(
            f"must be {ASK}, {NONE}, or a size and names of tasks whose code may run, such as "
            "20MB,words"
        )
    authors = {one.removeprefix(_FROM) for one in items if one.startswith(_FROM)}
    for author in authors:
        if not is_peer_id_text(author):
            raise ValueError(f"{_FROM}{author} is not the id of a peer, such as {_FROM}12D3Koo…")
    return AcceptRule(
        max_bytes=max_bytes,
        names=frozenset(one for one in items if not one.startswith(_FROM)),
        authors=frozenset(authors),
    )
