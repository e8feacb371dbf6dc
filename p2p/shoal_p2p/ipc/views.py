"""Debug views of what every peer has: identity, connections, meshes, refusals."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import trio

from shoal_base.bounded import REMEMBERED
from shoal_ipc.answers.node import Status
from shoal_ipc.answers.peer import (
    Connection,
    DiskView,
    Peers,
    Refusals,
    Relay,
    Scores,
    SwarmView,
    WorkerView,
)
from shoal_p2p.disk import free_bytes
from shoal_p2p.ipc.cost import CostMeter
from shoal_p2p.ipc.inspector import View, views_of
from shoal_p2p.ipc.net_views import NetViews
from shoal_p2p.ipc.which_peer import which_peer
from shoal_p2p.net.address import is_circuit
from shoal_p2p.swarm_node import SwarmNode
from shoal_wire.types import PeerId


class CoreViews:
    """Views of any peer."""

    def __init__(
        self, member: SwarmNode, *, beyond: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        """`beyond` returns status fields of this kind of peer, such as its `role`."""
        self._member = member
        self._beyond = beyond
        self._cost = CostMeter(
            member.host.traffic, member.peer.data_dir, in_thread=member.peer.parts.in_thread
        )

    def by_name(self) -> dict[str, View]:
        """Return the views by the names under which the CLI asks for them."""
        return {**views_of(self), **views_of(NetViews(self._member, self.status))}

    def known_peers(self) -> set[PeerId]:
        """Return every peer that a view may show."""
        member = self._member
        rated = member.guard.reputation.rows(trio.current_time())
        subscribed = (peer for t in member.gossip.topics() for peer in member.gossip.topic_peers(t))
        return {
            *member.host.connected_peers(),
            *(PeerId(target.peer_id) for target in member.discovery.snapshot()),
            *(PeerId(row.peer_id) for row in rated),
            *subscribed,
        }

    async def status(self, _options: Mapping[str, Any]) -> Status:
        """The peer at a glance."""
        member = self._member
        peers, report = member.host.connected_peers(), member.worker.report
        found = Status(
            peer_id=member.peer_id,
            public_key=member.host.identity.public_key_bytes.hex(),
            addresses=tuple(member.host.listen_addrs()),
            swarm=SwarmView(name=member.manifest.swarm_name, digest=member.manifest.digest.hex()),
            uptime_s=round(trio.current_time() - member.peer.started_at, 3),
            peers=len(peers),
            mesh={topic: len(members) for topic, members in member.gossip.mesh().items()},
            is_isolated=not peers,
            disk=DiskView(full=member.peer.disk.full, free_bytes=free_bytes(member.peer.data_dir)),
            verdicts=member.guard.verdicts.totals(),
            relays=tuple(member.peer.relays.relays),
            relay=self._relay(),
            worker=WorkerView(
                running=report is not None,
                pid=getattr(report, "pid", None),
                sandbox=getattr(report, "sandbox", ""),
                is_sandboxed=getattr(report, "is_sandboxed", False),
            ),
            cost=await self._cost.view(self._pids()),
        )
        return replace(found, **self._beyond())

    def _relay(self) -> Relay | None:
        relay = self._member.peer.relay
        if relay is None:
            return None
        return Relay(
            reservations=relay.num_reserved,
            circuits=relay.num_circuits,
            bytes=relay.bytes_relayed,
            refused=dict(relay.refused),
        )

    def _pids(self) -> dict[str, int | None]:
        """This peer's process ids by name."""
        worker = getattr(self._member.worker.report, "pid", None)
        return {"node": os.getpid(), "worker": worker}

    async def peers(self, _options: Mapping[str, Any]) -> Peers:
        """Connected peers, and what discovery is trying."""
        member = self._member
        return Peers(
            peers=tuple(
                Connection(
                    peer_id=one.peer_id,
                    address=one.address,
                    direction=str(one.direction),
                    relayed=is_circuit(one.address),
                    latency_ms=one.latency_ms,
                    agent=one.agent,
                    topics=tuple(member.gossip.peer_topics(one.peer_id)),
                    score=round(member.guard.score(one.peer_id), 3),
                    verdicts=member.guard.verdicts.peer(one.peer_id),
                    connected_s=round(one.opened_s, 3),
                    bytes_in=one.bytes_in,
                    bytes_out=one.bytes_out,
                )
                for one in member.host.connections()
            ),
            targets=member.discovery.snapshot(),
        )

    async def scores(self, options: Mapping[str, Any]) -> Scores:
        """The reputation of each peer, worst first. Option: `peer`, an id or its end, for one."""
        member, now = self._member, trio.current_time()
        reputation, wanted = member.guard.reputation, options.get("peer")
        if wanted is None:
            rows = reputation.rows(now)
        else:
            rows = (reputation.row(which_peer(str(wanted), self.known_peers()), now),)
        return Scores(
            scores=tuple(
                replace(row, connected=member.host.is_connected(PeerId(row.peer_id)))
                for row in rows[:REMEMBERED]  # the worst are what users look for
            ),
            refused=member.host.refused_connections(),
            evicted=member.peer.events.counters.peers_dropped,
        )

    async def refusals(self, _options: Mapping[str, Any]) -> Refusals:
        """Messages that were refused: counts by reason, and the latest in words."""
        guard = self._member.guard
        return Refusals(
            at_ms=self._member.peer.parts.wall_ms(),
            counts=guard.verdicts.refused(),
            recent=guard.refusals.newest(),
        )
