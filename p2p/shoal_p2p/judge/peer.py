"""The judge as a peer: a member of the swarm without buffer, outbox, trainer or subscriptions.

member (host, discovery, manifest) ─▶ records ─▶ task worker ─▶ `/shoal/judge/1` ─▶ socket ─▶ ready
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import trio

from shoal_p2p.intake.intake import Receivers
from shoal_p2p.ipc.inspector import View
from shoal_p2p.ipc.views import CoreViews
from shoal_p2p.judge.desk import DeskLimits
from shoal_p2p.judge.judge import JUDGE_LIMITS, Judge
from shoal_p2p.judge.store import JUDGE_FILE, JudgeStore
from shoal_p2p.peer import PeerNode
from shoal_p2p.peer_runner import PeerRunner
from shoal_p2p.swarm_node import SwarmNode
from shoal_settings.schema import Settings
from shoal_wire.judge import JUDGE_PROTOCOL, MAX_JUDGE_REQUEST_BYTES
from shoal_wire.manifest import Manifest


class SittingJudge:
    """A judge with its records open."""

    def __init__(
        self, peer: PeerNode, manifest: Manifest, *, limits: DeskLimits | None = None
    ) -> None:
        """Raises JudgeStoreError: the records cannot be opened."""
        # It subscribes to nothing, so no batch arrives.
        self.member = SwarmNode(peer, manifest, Receivers())
        self._store = JudgeStore(peer.data_dir / JUDGE_FILE, judge=peer.peer_id)
        self.judge = Judge(
            identity=peer.host.identity,
            manifest=manifest,
            worker=self.member.worker,
            store=self._store,
            wall_ms=peer.parts.wall_ms,
            limits=limits,
        )

    async def start(self, nursery: trio.Nursery) -> None:
        """Join the swarm, and serve requests."""
        await self.member.start(nursery)
        self.member.host.set_request_handler(
            JUDGE_PROTOCOL,
            self.judge.answer,
            max_request_bytes=MAX_JUDGE_REQUEST_BYTES,
            limits=JUDGE_LIMITS,
        )

    def views(self) -> Mapping[str, View]:
        """Return the debug views by name."""
        return CoreViews(self.member, beyond=self._status).by_name()

    def close(self) -> None:
        """Close the records."""
        self._store.close()

    def _status(self) -> dict[str, object]:
        return {
            "role": "judge",
            "records": self.judge.num_records,
            "judged": self.judge.judged,
            "open_challenges": self.judge.desk.num_open,
            "refused": dict(self.judge.refused),
        }


class JudgePeer(PeerRunner[SittingJudge]):
    """One judge, from start to end."""

    def __init__(
        self, *, settings: Settings, limits: DeskLimits | None = None, **life: Any
    ) -> None:
        """`life` are `PeerRunner`'s other arguments but for the role."""
        super().__init__(
            # It receives no gossip, so the task worker only scores answers.
            settings=settings.model_copy(update={"subscribe_shards": "0"}),
            role=partial(SittingJudge, limits=limits),
            **life,
        )
