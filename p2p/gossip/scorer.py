"""The mesh's shape, and what a peer's score lets it do: ours instead of the library's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from libp2p.peer.id import ID
from libp2p.pubsub.score import PeerScorer, ScoreParams

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSettings:
    """The mesh's shape and the scores at which a peer loses its rights (gossipsub v1.1)."""

    degree: int = 6
    degree_low: int = 4
    degree_high: int = 12
    heartbeat_s: float = 1.0
    idontwant_bytes: int = 16 * 1024
    """IDONTWANT is sent for messages of at least this size; below it costs more than it saves."""
    gossip_threshold: float = -10.0
    """Below this score a peer gets no messages from us."""
    graylist_threshold: float = -40.0
    """Below this score nothing a peer sends is read."""


class AppScorer(PeerScorer):
    """A peer's score is what our own reputation says; the library's counters weigh nothing."""

    def __init__(self, mesh: MeshSettings, score: Callable[[ID], float]) -> None:
        super().__init__(
            ScoreParams(
                gossip_threshold=mesh.gossip_threshold, graylist_threshold=mesh.graylist_threshold
            )
        )
        self._score = score

    def score(self, peer: ID, topics: list[str]) -> float:
        """Return the application's score of `peer`; 0 if it cannot tell."""
        try:
            return self._score(peer)
        except Exception:  # the score function is the node's code, run on every message
            logger.exception("the score function failed")
            return 0.0

    def allow_publish(self, peer: ID, topics: list[str]) -> bool:
        """Everybody may publish; validation and quotas judge the message itself."""
        return True

    def allow_gossip(self, peer: ID, topics: list[str]) -> bool:
        """True unless `peer` is below the gossip threshold."""
        return self.score(peer, topics) >= self.params.gossip_threshold

    def on_heartbeat(self, dt_seconds: float = 1.0) -> None:
        """Nothing decays here."""

    def on_join_mesh(self, peer: ID, topic: str) -> None:
        """Count nothing."""

    def on_leave_mesh(self, peer: ID, topic: str) -> None:
        """Count nothing."""

    def on_first_delivery(self, peer: ID, topic: str) -> None:
        """Count nothing."""

    def on_invalid_message(self, peer: ID, topic: str) -> None:
        """Count nothing."""
