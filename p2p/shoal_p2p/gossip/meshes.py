"""Maintains the mesh of each topic: graft, prune, back-off, mixing (gossipsub v1.1). Pure.

Differences from the specification: opportunistic grafting, which is random churn while all scores
are equal, is replaced by mixing; PRUNE carries no peer exchange, which has its own protocol; the
lowest scores are pruned first, and D_score is applied to what peers delivered.

Gossipsub accepts any mesh with at least D_low members. After a partition, each half of a swarm has
full meshes of its own. When the halves reconnect, no mesh needs members, so messages cross over
only through a few accidental links, or by IHAVE a heartbeat later. To a lesser degree the same
holds for peers that joined early and late.

Mixing therefore grafts one random outside peer from time to time and, above the degree, prunes one
or two old members. That takes a few control messages every ten seconds and evens out the mesh sizes
(in a simulated swarm of 32 fully connected nodes with degree 6, the mean is 6.2 instead of 7.5). A
mesh that finds no candidate stays due and takes the first peer that appears, which is the one that
has come back. Reconnecting does not advance mixing, and pruned peers wait for their back-off, so
unknown peers gain no larger share of a mesh than they have of the connections.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from typing import NamedTuple, Protocol

from shoal_base.waits import LOOK_S
from shoal_p2p.gossip.peers import PeerTable
from shoal_p2p.gossip.rpc import Event, Misbehaviour, Rpc, SendRpc
from shoal_p2p.gossip.settings import MeshSettings
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId

PRUNE_BACKOFF_S = 60
"""Seconds after a PRUNE during which neither side grafts (gossipsub's default)."""
LEAVE_BACKOFF_S = 10
"""The back-off after leaving a topic, in seconds (gossipsub's default)."""
MAX_BACKOFF_S = 600
"""Longest back-off accepted from a peer, in seconds."""
_BACKOFF_SLACK_S = 5.0
"""A GRAFT within this time before the end of a back-off is no offence: the two sides start counting
at different moments, in whole seconds."""
_CROSSING_S = 3.0
"""A GRAFT within this time after our PRUNE may have crossed it on the wire."""

MIX_EVERY_S = 10.0
"""Mean interval at which a mesh is mixed, in seconds."""
_MAX_REPLACED = 2
"""Most members pruned for one new member, above the degree: one in exchange and one to shrink. With
more, peers that were pruned by many meshes at once found no peer to graft until the back-offs had
ended."""


class _Backoff(NamedTuple):
    since: float
    until: float


class PeerRating(Protocol):
    """Rates peers: by their behaviour, and by what they delivered."""

    def score(self, peer: PeerId) -> float:
        """Return a peer's score, at most 0."""

    def rank(self, peer: PeerId) -> float:
        """Return how useful a peer was; more is better."""


class Meshes:
    """The meshes of all topics that this node has joined."""

    def __init__(
        self, shape: MeshSettings, peers: PeerTable, rating: PeerRating, *, rng: random.Random
    ) -> None:
        self._shape = shape
        self._peers = peers
        self._rating = rating
        self._rng = rng
        self.members: dict[str, dict[PeerId, float]] = {}
        """Members of each topic's mesh, with the time when each joined it."""
        self._mix_due: dict[str, float] = {}
        """Time when each topic's mesh is due for mixing. A new topic waits for a full interval."""
        self._backoffs: dict[tuple[str, PeerId], _Backoff] = {}
        self._excused_crossings: set[tuple[str, PeerId]] = set()
        """Peers that sent one GRAFT during a back-off, which may have crossed our PRUNE."""
        self._dialled: dict[PeerId, bool] = {}
        """Peers with a stream, and whether this node dialled them."""
        self._open_since: dict[PeerId, float] = {}
        self._excused_reconnects: set[tuple[str, PeerId]] = set()
        """Peers that sent one GRAFT during a back-off that began before their connection."""
        self._next_expiry_at = 0.0
        """Time of the next removal of expired back-offs."""

    def is_fit(self, peer: PeerId) -> bool:
        """True unless the peer's score is below the gossip threshold."""
        return self._rating.score(peer) >= self._shape.gossip_threshold

    def in_backoff(self, topic: str, peer: PeerId, now: float) -> bool:
        """Return whether the peer must not be grafted yet."""
        backoff = self._backoffs.get((topic, peer))
        return backoff is not None and backoff.until > now

    def _set_backoff(self, topic: str, peer: PeerId, seconds: float, now: float) -> None:
        known = self._backoffs.get((topic, peer))
        if known is None or known.until <= now:
            known = _Backoff(now, now)
            self._excused_crossings.discard((topic, peer))
        self._backoffs[topic, peer] = _Backoff(known.since, max(now + seconds, known.until))

    # Connections

    def on_stream_opened(self, peer: PeerId, now: float, *, is_dialled: bool) -> None:
        """Record a new connection of a peer."""
        self._dialled[peer] = is_dialled
        self._open_since[peer] = now
        self._excused_reconnects = {entry for entry in self._excused_reconnects if entry[1] != peer}

    def on_stream_closed(self, peer: PeerId) -> None:
        """Forget a peer, except for its back-offs."""
        self._dialled.pop(peer, None)
        self._open_since.pop(peer, None)
        self.remove(peer)

    # Actions of this node

    def join(self, topic: str, now: float) -> list[SendRpc]:
        """Begin the mesh of `topic`."""
        if topic in self.members:
            return []
        self.members[topic] = {}
        self._schedule_mix(topic, now)
        return self._graft_some(topic, self._shape.degree, now)

    def leave(self, topic: str, now: float) -> list[SendRpc]:
        """End the mesh of `topic`."""
        members = self.members.pop(topic, {})
        self._mix_due.pop(topic, None)
        for peer in members:
            self._set_backoff(topic, peer, LEAVE_BACKOFF_S, now)
        return [SendRpc(peer, Rpc(prune=[(topic, LEAVE_BACKOFF_S)])) for peer in members]

    def on_subscribed(self, topic: str, peer: PeerId, now: float) -> list[SendRpc]:
        """Graft a new subscriber at once if the mesh is small."""
        members = self.members.get(topic)
        if (
            members is None
            or peer in members
            or len(members) >= self._shape.degree_low
            or peer not in self._peers.reachable
            or self.in_backoff(topic, peer, now)
            or not self.is_fit(peer)
        ):
            return []
        return self._graft(topic, peer, now)

    def remove(self, peer: PeerId, topics: Collection[str] | None = None) -> None:
        """Remove `peer` from the meshes of `topics`, or from all of them."""
        for topic in self.members if topics is None else topics:
            self.members.get(topic, {}).pop(peer, None)

    def _graft(self, topic: str, peer: PeerId, now: float) -> list[SendRpc]:
        self.members[topic][peer] = now
        return [SendRpc(peer, Rpc(graft=[topic]))]

    def _prune(self, topic: str, peer: PeerId, now: float) -> list[SendRpc]:
        self.members[topic].pop(peer, None)
        # The pruned peer would charge this node for a GRAFT during the back-off.
        self._set_backoff(topic, peer, PRUNE_BACKOFF_S, now)
        return [_send_prune(topic, peer)]

    def _graft_some(
        self, topic: str, count: int, now: float, *, dialled_only: bool = False
    ) -> list[SendRpc]:
        members = self.members[topic]
        fit = [
            peer
            for peer in self._peers.subscribed_to(topic)
            if peer not in members
            and (not dialled_only or self._dialled.get(peer))
            and peer in self._peers.reachable
            and not self.in_backoff(topic, peer, now)
            and self.is_fit(peer)
        ]
        chosen = fit if len(fit) <= count else self._rng.sample(fit, count)
        return [send for peer in chosen for send in self._graft(topic, peer, now)]

    # Requests of peers

    def on_graft(self, topic: str, peer: PeerId, now: float) -> list[Event]:
        """Add a peer that sent GRAFT to the mesh, or answer with PRUNE."""
        members = self.members.get(topic)
        if members is None:
            return [_send_prune(topic, peer)]
        is_excused = self._excuse_reconnect(topic, peer, now)
        charges = [] if is_excused else self._charge_graft(topic, peer, now)
        if not self.is_fit(peer):
            return [*charges, _send_prune(topic, peer)]
        if self.in_backoff(topic, peer, now):
            if is_excused:
                left_s = math.ceil(self._backoffs[topic, peer].until - now)
                return [_send_prune(topic, peer, left_s)]
            self._set_backoff(topic, peer, PRUNE_BACKOFF_S, now)
            return [*charges, _send_prune(topic, peer)]
        is_full = len(members) >= self._shape.degree_high and peer not in members
        if is_full and not (self._dialled.get(peer) or self._rating.rank(peer) > 0):
            self._set_backoff(topic, peer, PRUNE_BACKOFF_S, now)
            return [_send_prune(topic, peer)]
        members.setdefault(peer, now)
        return []

    def _excuse_reconnect(self, topic: str, peer: PeerId, now: float) -> bool:
        """Return whether the peer may have restarted, and so have forgotten its back-off.

        That excuses one GRAFT per connection. The back-off itself is unchanged.
        """
        backoff = self._backoffs.get((topic, peer))
        if backoff is None or backoff.until <= now or (topic, peer) in self._excused_reconnects:
            return False
        if self._open_since.get(peer, backoff.since) <= backoff.since:
            return False
        self._excused_reconnects.add((topic, peer))
        return True

    def _charge_graft(self, topic: str, peer: PeerId, now: float) -> list[Event]:
        backoff = self._backoffs.get((topic, peer))
        if backoff is None or backoff.until - now <= _BACKOFF_SLACK_S:
            return []
        # The GRAFT may have crossed our PRUNE on the wire. That excuses one, not a second.
        is_excused = (
            now - backoff.since <= _CROSSING_S and (topic, peer) not in self._excused_crossings
        )
        self._excused_crossings.add((topic, peer))
        return [] if is_excused else [Misbehaviour(peer, Cause.BROKEN_BACKOFF)]

    def on_prune(self, topic: str, peer: PeerId, seconds: int, now: float) -> None:
        """Remove a peer that sent PRUNE and respect its back-off. Unknown topics are ignored."""
        if topic in self.members:
            self._set_backoff(topic, peer, min(seconds or PRUNE_BACKOFF_S, MAX_BACKOFF_S), now)
            self.members[topic].pop(peer, None)

    # Heartbeat

    def maintain(self, now: float) -> list[SendRpc]:
        """Keep each mesh at its degree, with reachable peers above the gossip threshold."""
        sends = []
        for topic in self.members:
            sends += self._drop_unfit(topic, now)
            size = len(self.members[topic])
            if size < self._shape.degree_low:
                sends += self._graft_some(topic, self._shape.degree - size, now)
            elif size >= self._shape.degree_high:
                members = list(self.members[topic])
                sends += self._prune_worst(topic, size - self._shape.degree, members, now)
            sends += self._mix(topic, now)
            sends += self._graft_dialled(topic, now)
        self._expire_backoffs(now)
        return sends

    def _drop_unfit(self, topic: str, now: float) -> list[SendRpc]:
        members, subscribers = self.members[topic], self._peers.subscribed_to(topic)
        reachable = self._peers.reachable
        for peer in [p for p in members if p not in subscribers or p not in reachable]:
            del members[peer]
        unfit = [peer for peer in members if not self.is_fit(peer)]
        return [send for peer in unfit for send in self._prune(topic, peer, now)]

    def _prune_worst(
        self, topic: str, count: int, peers: list[PeerId], now: float
    ) -> list[SendRpc]:
        """Prune the `count` peers with the lowest scores.

        Among equal scores the highest-ranked members go last and the others at random, so that
        unknown peers that deliver nothing and graft repeatedly cannot displace peers that deliver.
        The last few members that this node dialled stay.
        """
        self._rng.shuffle(peers)
        ranks = {peer: self._rating.rank(peer) for peer in self.members[topic]}
        worthiest = sorted((p for p in ranks if ranks[p] > 0), key=lambda p: -ranks[p])
        staying = set(worthiest[: self._shape.degree_score])
        peers.sort(key=lambda peer: (self._rating.score(peer), peer in staying))
        spare = self._num_dialled(topic) - self._shape.degree_out
        sends: list[SendRpc] = []
        for peer in peers:
            if len(sends) >= count:
                break
            if self._dialled.get(peer):
                if spare <= 0:
                    continue
                spare -= 1
            sends += self._prune(topic, peer, now)
        return sends

    def _num_dialled(self, topic: str) -> int:
        return sum(self._dialled.get(peer, False) for peer in self.members[topic])

    def _graft_dialled(self, topic: str, now: float) -> list[SendRpc]:
        """Graft peers that this node dialled, while the mesh has too few of them."""
        missing = self._shape.degree_out - self._num_dialled(topic)
        if missing <= 0 or len(self.members[topic]) < self._shape.degree_low:
            return []
        return self._graft_some(topic, missing, now, dialled_only=True)

    def _mix(self, topic: str, now: float) -> list[SendRpc]:
        """Graft one random outside peer into a mesh that is due for mixing."""
        old = list(self.members[topic])
        if len(old) < self._shape.degree_low or now < self._mix_due[topic]:
            return []
        newcomers = self._graft_some(topic, 1, now)
        if not newcomers:
            return []
        self._schedule_mix(topic, now)
        surplus = len(old) + 1 - self._shape.degree
        return newcomers + self._prune_worst(topic, min(surplus, _MAX_REPLACED), old, now)

    def _schedule_mix(self, topic: str, now: float) -> None:
        self._mix_due[topic] = now + MIX_EVERY_S * self._rng.uniform(0.5, 1.5)

    def _expire_backoffs(self, now: float) -> None:
        if now < self._next_expiry_at:
            return
        self._next_expiry_at = now + LOOK_S
        self._backoffs = {key: b for key, b in self._backoffs.items() if b.until > now}
        self._excused_crossings &= self._backoffs.keys()


def _send_prune(topic: str, peer: PeerId, seconds: int = PRUNE_BACKOFF_S) -> SendRpc:
    return SendRpc(peer, Rpc(prune=[(topic, seconds)]))
