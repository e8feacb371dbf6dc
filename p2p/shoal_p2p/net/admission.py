"""Admission of peers: temporary bans, and a private swarm's list of peers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from shoal_base.bounded import MANY
from shoal_wire.types import PeerId


class Admission:
    """Decides which peers may connect. The host enforces it."""

    def __init__(self) -> None:
        self._banned_until: dict[PeerId, float] = {}
        self._allowed: frozenset[PeerId] | None = None
        self.is_open = False
        """True once the swarm is known and has no list of peers."""

    def ban(self, peer_id: PeerId, *, seconds: float, now: float) -> None:
        """Refuse `peer_id` for `seconds`. A longer existing ban stays.

        At the limit, the ban that ends first is dropped.
        """
        until = max(now + seconds, self._banned_until.get(peer_id, 0.0))
        while len(self._banned_until) >= MANY:
            del self._banned_until[min(self._banned_until, key=lambda p: self._banned_until[p])]
        self._banned_until[peer_id] = until

    def unban(self, peer_id: PeerId) -> None:
        """Lift the ban of `peer_id`."""
        self._banned_until.pop(peer_id, None)

    def is_banned(self, peer_id: PeerId, now: float) -> bool:
        """Return whether `peer_id` is banned."""
        until = self._banned_until.get(peer_id)
        if until is not None and until <= now:
            del self._banned_until[peer_id]
            until = None
        return until is not None

    def admit_only(self, peers: Iterable[PeerId] | None, *, is_known: bool = True) -> None:
        """Refuse all peers except `peers` from now on; None admits all.

        `is_known` is False if a bootstrap peer may still report that the swarm has a list.
        """
        self._allowed = None if peers is None else frozenset(peers)
        self.is_open = is_known and peers is None

    def is_admitted(self, peer_id: PeerId) -> bool:
        """Return whether `peer_id` is on the list of peers, or there is none."""
        return self._allowed is None or peer_id in self._allowed
