"""Debug views of what every peer has: identity, connections, mesh, topics.

The keys are a contract (docs/debug.md): programs read them. New ones may come, none changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import trio

from p2p.disk import free_bytes
from p2p.ipc.cost import CostMeter
from p2p.ipc.inspector import SCHEMA_VERSION, View, view, views_of
from p2p.ipc.net_views import NetViews
from p2p.ipc.which_peer import which_peer
from p2p.member import Member
from p2p.net.address import is_circuit
from shoal_wire.types import PeerId
from shoal_wire.verdict import in_words

_MAX_SCORES = 1024


class CoreViews:
    """Views of a peer, as plain JSON values."""

    def __init__(self, member: Member, *, beyond: Callable[[], Mapping[str, Any]] = dict) -> None:
        """`beyond` is what the status has of this sort of peer, its `role` say."""
        self._member = member
        self._beyond = beyond
        self._cost = CostMeter(
            member.host.traffic, member.peer.data_dir, in_thread=member.peer.parts.in_thread
        )

    def by_name(self) -> dict[str, View]:
        """Return the views by the names under which the CLI asks for them."""
        return {**views_of(self), **views_of(NetViews(self._member, self.status, self.known_peers))}

    def known_peers(self) -> set[PeerId]:
        """Return everybody whom a view may name."""
        member = self._member
        held = member.guard.reputation.rows(trio.current_time())
        subscribed = (peer for t in member.gossip.topics() for peer in member.gossip.topic_peers(t))
        return {
            *member.host.connected_peers(),
            *(target.peer_id for target in member.discovery.snapshot()),
            *(row.peer_id for row in held),
            *subscribed,
        }

    @view
    async def status(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """The peer at a glance."""
        member = self._member
        peers, relay = member.host.connected_peers(), member.peer.relay
        return {
            **self._who(),
            "uptime_s": round(trio.current_time() - member.peer.started_at, 3),
            "peers": len(peers),
            "mesh": {topic: len(members) for topic, members in member.gossip.mesh().items()},
            "solo": not peers,
            "disk": {"full": member.peer.disk.full, "free_bytes": free_bytes(member.peer.data_dir)},
            "verdicts": member.guard.verdicts.totals(),
            "relays": list(member.peer.relays.relays),
            "relay": None
            if relay is None
            else {
                "reservations": relay.num_reserved,
                "circuits": relay.num_circuits,
                "bytes": relay.bytes_relayed,
                "refused": dict(relay.refused),
            },
            "worker": {
                "running": member.worker.report is not None,
                "pid": getattr(member.worker.report, "pid", None),
            },
            "cost": await self._cost.view(self._pids()),
            **self._beyond(),
        }

    def _pids(self) -> dict[str, int | None]:
        """The processes that it costs, by what each is called."""
        worker = getattr(self._member.worker.report, "pid", None)
        return {"node": os.getpid(), "worker": worker}

    @view
    async def id(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """Who this peer is."""
        return {**self._who(), "public_key": self._member.host.identity.public_key_bytes.hex()}

    @view
    async def peers(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """Connected peers, and what discovery is trying."""
        member = self._member
        rows = [
            {
                "peer_id": connection.peer_id,
                "address": connection.address,
                "direction": str(connection.direction),
                "relayed": is_circuit(connection.address),
                "latency_ms": connection.latency_ms,
                "agent": connection.agent,
                "topics": list(member.gossip.peer_topics(connection.peer_id)),
                "score": round(member.guard.score(connection.peer_id), 3),
                "verdicts": member.guard.verdicts.peer(connection.peer_id),
                "connected_s": round(connection.opened_s, 3),
                "bytes_in": connection.bytes_in,
                "bytes_out": connection.bytes_out,
            }
            for connection in member.host.connections()
        ]
        targets = [
            {
                "peer_id": target.peer_id,
                "address": target.address,
                "kind": str(target.kind),
                "state": str(target.state),
                "attempts": target.attempts,
                "next_try_s": target.next_try_s,
                "last_error": target.last_error,
            }
            for target in member.discovery.snapshot()
        ]
        return {"schema_version": SCHEMA_VERSION, "peers": rows, "targets": targets}

    @view
    async def scores(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """What is held of each peer, the worst first. Option: `peer`, an id or its end, for one."""
        member, now = self._member, trio.current_time()
        reputation = member.guard.reputation
        wanted = options.get("peer")
        if wanted is None:
            rows = reputation.rows(now)
        else:
            rows = (reputation.row(which_peer(str(wanted), self.known_peers()), now),)
        return {
            "schema_version": SCHEMA_VERSION,
            "scores": [
                {
                    "peer_id": row.peer_id,
                    "score": round(row.score, 3),
                    "merit": round(row.merit, 3),
                    "points": {str(c): round(p, 3) for c, p in row.points.items() if p < -0.005},
                    "sampling_weight": round(row.sampling_weight, 4),
                    "reports": round(row.reports, 2),
                    "banned_s": None if row.banned_s is None else round(row.banned_s, 1),
                    "bans": row.bans,
                    "blocked": row.blocked,
                    "protected": row.protected,
                    "connected": member.host.is_connected(row.peer_id),
                }
                for row in rows[:_MAX_SCORES]
            ],
            "refused": member.host.refused_connections(),
            "made_room": member.guard.num_made_room,
        }

    @view
    async def refusals(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """What of others was not taken: counts by reason, and the latest, each in words."""
        guard = self._member.guard
        return {
            "schema_version": SCHEMA_VERSION,
            "at_ms": self._member.peer.parts.wall_ms(),
            "counts": [
                {
                    "reason": str(reason),
                    "kind": str(reason.row.outcome),
                    "count": count,
                    **in_words(reason),
                }
                for reason, count in guard.verdicts.refused()
            ],
            "ring": [
                {
                    "at_ms": one.at_ms,
                    "reason": str(one.reason),
                    "kind": str(one.outcome),
                    "signer": one.signer or "",
                    "forwarder": one.forwarder,
                    "family": one.family,
                    "times": one.times,
                    **in_words(one.reason),
                }
                for one in guard.refusals.newest()
            ],
        }

    @view
    async def mesh(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """Per topic: who is in the mesh and since when, and who else is subscribed."""
        gossip = self._member.gossip
        meshes = gossip.mesh()
        return {
            "schema_version": SCHEMA_VERSION,
            "topics": {
                topic: {
                    "mesh": [
                        {"peer_id": member.peer_id, "since_s": round(member.since_s, 3)}
                        for member in meshes.get(topic, [])
                    ],
                    "peers": list(gossip.topic_peers(topic)),
                }
                for topic in gossip.topics()
            },
        }

    @view
    async def topics(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """The topics this peer is subscribed to, and the one it publishes on."""
        member = self._member
        meshes = member.gossip.mesh()
        own = member.shards.own_shard
        subscribed = member.shards.shards
        return {
            "schema_version": SCHEMA_VERSION,
            "shards": member.manifest.rules.shard_count,
            "subscribed": list(subscribed),
            "topics": [
                {
                    "topic": (topic := member.manifest.topic(shard)),
                    "shard": shard,
                    "subscribed": shard in subscribed,
                    "publishes": shard == own,
                    "peers": len(member.gossip.topic_peers(topic)),
                    "mesh": len(meshes.get(topic, [])),
                    "groups_per_s": round(member.shards.rate(shard), 3),
                }
                for shard in sorted({*subscribed, *(() if own is None else (own,))})
            ],
        }

    def _who(self) -> dict[str, Any]:
        member = self._member
        return {
            "schema_version": SCHEMA_VERSION,
            "peer_id": member.peer_id,
            "addresses": list(member.host.listen_addrs()),
            "swarm": {"name": member.manifest.swarm_name, "digest": member.manifest.digest.hex()},
        }
