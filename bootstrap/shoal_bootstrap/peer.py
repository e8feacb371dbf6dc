"""The bootstrap peer: a member of the swarm without buffer, outbox or trainer.

It validates before it forwards, like any peer, and forgets what it has forwarded. Nodes that
have met stay together without it. An installation without the library of questions cannot validate:
there nodes meet and are relayed to one another, and nothing is forwarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from shoal_base.extras import missing_for_tasks
from shoal_p2p.intake.intake import Receivers
from shoal_p2p.ipc.inspector import View
from shoal_p2p.ipc.views import CoreViews
from shoal_p2p.peer import PeerNode
from shoal_p2p.peer_runner import PeerRunner
from shoal_p2p.swarm_node import SwarmNode
from shoal_wire.manifest import Manifest
from shoal_wire.types import SignedBatch


class MeetingPoint:
    """A relay of gossip that keeps nothing."""

    def __init__(self, peer: PeerNode, manifest: Manifest) -> None:
        self.member = SwarmNode(
            peer,
            manifest,
            Receivers(keep=self._forget),
            validates=missing_for_tasks() is None,
        )
        self.groups_relayed = 0

    async def start(self, nursery: trio.Nursery) -> None:
        """Join the swarm."""
        await self.member.start(nursery)

    def views(self) -> Mapping[str, View]:
        """Return the debug views by name."""
        return CoreViews(self.member, beyond=self._status).by_name()

    def close(self) -> None:
        """Nothing is open."""

    def _status(self) -> dict[str, object]:
        return {"role": "bootstrap", "groups_relayed": self.groups_relayed}

    async def _forget(self, batches: Sequence[SignedBatch]) -> None:
        self.groups_relayed += sum(len(signed.batch.groups) for signed in batches)


class BootstrapPeer(PeerRunner[MeetingPoint]):
    """One bootstrap peer, from start to end."""

    def __init__(self, **life: Any) -> None:
        """`life` are `PeerRunner`'s arguments but for the role."""
        super().__init__(role=MeetingPoint, **life)
