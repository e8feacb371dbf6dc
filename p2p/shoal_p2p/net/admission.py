"""Admission of peers: bans that end, and a private swarm's list of peers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from shoal_base.bounded import MANY
from shoal_wire.types import PeerId


class Admission:
    """One peer's say about whom it has connections with; the host enforces it."""

    def __init__(self) -> None:
        self._banned_until: dict[PeerId, float] = {}
        self._allowed: frozenset[PeerId] | None = None
        self.is_open = False
        """True once the swarm is known, and has no list of peers."""

    def ban(self, peer_id: PeerId, *, seconds: float, now: float) -> None:
        """Refuse `peer_id` for `seconds`; a longer ban it has stays.

        Of too many, the one that ends first is forgotten.
        """
        until = max(now + seconds, self._banned_until.get(peer_id, 0.0))
        while len(self._banned_until) >= MANY:
            del self._banned_until[min(self._banned_until, key=lambda p: self._banned_until[p])]
        self._banned_until[peer_id] = until

    def unban(self, peer_id: PeerId) -> None:
        """Let `peer_id` connect again."""
        self._banned_until.pop(peer_id, None)

    def is_banned(self, peer_id: PeerId, now: float) -> bool:
        """True while a ban of `peer_id` lasts."""
        until = self._banned_until.get(peer_id)
        if until is not None and until <= now:
            del self._banned_until[peer_id]
            until = None
        return until is not None

    def admit_only(self, peers: Iterable[PeerId] | None, *, is_known: bool = True) -> None:
        """Refuse all but `peers` from now on; None admits all.

        `is_known` is False where a bootstrap may yet say that the swarm has a list.
        """
        self._allowed = None if peers is None else frozenset(peers)
        self.is_open = is_known and peers is None

    def is_admitted(self, peer_id: PeerId) -> bool:
        """True unless there is a list of peers without `peer_id`."""
        return self._allowed is None or peer_id in self._allowed
