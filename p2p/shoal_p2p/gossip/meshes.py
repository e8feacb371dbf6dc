"""The mesh of each topic: peers grafted, pruned, backed off, mixed (gossipsub v1.1). Pure.

Differences from the specification: a mesh below its high degree is not improved by opportunistic
grafting (random churn while all scores are equal) but mixed; PRUNE exchanges no peers, which have a
protocol of their own; the lowest scores are pruned first, and D_score goes by what peers brought.

Gossipsub is content with any mesh of at least its low degree. Two halves of a swarm that were
parted fill their meshes each among themselves; together again, everybody is connected to everybody
and no mesh looks for more, so the halves hear each other only through whoever happens to link them,
or a heartbeat late through offers. The same is true, less sharply, of who joined early and late.

So now and then one peer from outside is taken in, at random, and above the degree one or two of
the old go: a few control messages every ten seconds, and meshes of even size about the degree (in
a simulated swarm of 32, all connected, and a degree of 6: 6.2 on the mean instead of 7.5). A mesh
with nobody to take in stays due, and takes the first who comes: the one who is back. Connecting
anew makes it no sooner due, and who was pruned waits for its back-off, so a stranger gains by this
no larger share of the mesh than it has of the connections.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection
from typing import NamedTuple

from shoal_base.waits import LOOK_S
from shoal_p2p.gossip.peers import PeerTable
from shoal_p2p.gossip.rpc import Event, Misbehaviour, Rpc, SendRpc
from shoal_p2p.gossip.settings import MeshSettings
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId

PRUNE_BACKOFF_S = 60
"""Seconds after a PRUNE in which nobody grafts (gossipsub's default)."""
LEAVE_BACKOFF_S = 10
"""The same after leaving a topic (gossipsub's default)."""
MAX_BACKOFF_S = 600
"""The longest back-off that a peer can ask for."""
_BACKOFF_SLACK_S = 5.0
"""A GRAFT so soon before the end of a back-off is no offence: the two ends count it from different
moments, in whole seconds."""
_CROSSING_S = 3.0
"""A GRAFT so soon after our PRUNE may have crossed it."""

MIX_EVERY_S = 10.0
"""Mean time between two newcomers of one mesh."""
_MOST_LEAVING = 2
"""Members that go for one newcomer, above the degree: one for it, and one to shrink by. With more,
some who were pruned by many at once found nobody left to graft until the back-offs were over."""


class _BackOff(NamedTuple):
    since: float
    until: float


class Meshes:
    """The meshes of the topics that this node has joined."""

    def __init__(
        self,
        shape: MeshSettings,
        peers: PeerTable,
        *,
        score: Callable[[PeerId], float],
        rank: Callable[[PeerId], float],
        rng: random.Random,
    ) -> None:
        self._shape = shape
        self._peers = peers
        self._score = score
        self._rank = rank
        self._rng = rng
        self.members: dict[str, dict[PeerId, float]] = {}
        """Members of each topic's mesh, with the time since when each is one."""
        self._mix_due: dict[str, float] = {}
        """Time when each topic's mesh takes a newcomer; one just joined waits its turn."""
        self._backoffs: dict[tuple[str, PeerId], _BackOff] = {}
        self._excused: set[tuple[str, PeerId]] = set()
        """Peers that sent one GRAFT into a back-off, which may have crossed our PRUNE."""
        self._dialled: dict[PeerId, bool] = {}
        """Peers with a stream, and whether this node made the connection."""
        self._open_since: dict[PeerId, float] = {}
        self._excused_anew: set[tuple[str, PeerId]] = set()
        """Peers that sent one GRAFT into a back-off that is older than their connection."""
        self._tidy_at = 0.0
        """Time when back-offs that are over are next forgotten."""

    def is_fit(self, peer: PeerId) -> bool:
        """True unless the peer's score is below the gossip threshold."""
        return self._score(peer) >= self._shape.gossip_threshold

    def in_backoff(self, topic: str, peer: PeerId, now: float) -> bool:
        """True while the peer must not be grafted."""
        backoff = self._backoffs.get((topic, peer))
        return backoff is not None and backoff.until > now

    def _hold_off(self, topic: str, peer: PeerId, seconds: float, now: float) -> None:
        known = self._backoffs.get((topic, peer))
        if known is None or known.until <= now:
            known = _BackOff(now, now)
            self._excused.discard((topic, peer))
        self._backoffs[topic, peer] = _BackOff(known.since, max(now + seconds, known.until))

    # Who is there

    def opened(self, peer: PeerId, now: float, *, is_dialled: bool) -> None:
        """Note a peer that is connected anew."""
        self._dialled[peer] = is_dialled
        self._open_since[peer] = now
        self._excused_anew = {entry for entry in self._excused_anew if entry[1] != peer}

    def closed(self, peer: PeerId) -> None:
        """Forget a peer, but not its back-offs."""
        self._dialled.pop(peer, None)
        self._open_since.pop(peer, None)
        self.lose(peer)

    # What this node wants

    def join(self, topic: str, now: float) -> list[SendRpc]:
        """Begin the mesh of `topic`."""
        if topic in self.members:
            return []
        self.members[topic] = {}
        self._put_off_mixing(topic, now)
        return self._graft_some(topic, self._shape.degree, now)

    def leave(self, topic: str, now: float) -> list[SendRpc]:
        """End the mesh of `topic`."""
        members = self.members.pop(topic, {})
        self._mix_due.pop(topic, None)
        for peer in members:
            self._hold_off(topic, peer, LEAVE_BACKOFF_S, now)
        return [SendRpc(peer, Rpc(prune=[(topic, LEAVE_BACKOFF_S)])) for peer in members]

    def met(self, topic: str, peer: PeerId, now: float) -> list[SendRpc]:
        """Graft a new subscriber at once while the mesh is small."""
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

    def lose(self, peer: PeerId, topics: Collection[str] | None = None) -> None:
        """Take `peer` out of the meshes of `topics`, or of all of them."""
        for topic in self.members if topics is None else topics:
            self.members.get(topic, {}).pop(peer, None)

    def _graft(self, topic: str, peer: PeerId, now: float) -> list[SendRpc]:
        self.members[topic][peer] = now
        return [SendRpc(peer, Rpc(graft=[topic]))]

    def _prune(self, topic: str, peer: PeerId, now: float) -> list[SendRpc]:
        self.members[topic].pop(peer, None)
        # A pruned peer charges us for a graft before its back-off is over.
        self._hold_off(topic, peer, PRUNE_BACKOFF_S, now)
        return [_pruned(topic, peer)]

    def _graft_some(
        self, topic: str, count: int, now: float, *, dialled_only: bool = False
    ) -> list[SendRpc]:
        members = self.members[topic]
        fit = [
            peer
            for peer in self._peers.of(topic)
            if peer not in members
            and (not dialled_only or self._dialled.get(peer))
            and peer in self._peers.reachable
            and not self.in_backoff(topic, peer, now)
            and self.is_fit(peer)
        ]
        chosen = fit if len(fit) <= count else self._rng.sample(fit, count)
        return [send for peer in chosen for send in self._graft(topic, peer, now)]

    # What peers want

    def grafted(self, topic: str, peer: PeerId, now: float) -> list[Event]:
        """Take a peer that sent GRAFT into the mesh, or send it away."""
        members = self.members.get(topic)
        if members is None:
            return [_pruned(topic, peer)]
        is_excused = self._excuse_new(topic, peer, now)
        charges = [] if is_excused else self._charge_graft(topic, peer, now)
        if not self.is_fit(peer):
            return [*charges, _pruned(topic, peer)]
        if self.in_backoff(topic, peer, now):
            if is_excused:
                left_s = math.ceil(self._backoffs[topic, peer].until - now)
                return [_pruned(topic, peer, left_s)]
            self._hold_off(topic, peer, PRUNE_BACKOFF_S, now)
            return [*charges, _pruned(topic, peer)]
        is_full = len(members) >= self._shape.degree_high and peer not in members
        if is_full and not (self._dialled.get(peer) or self._rank(peer) > 0):
            self._hold_off(topic, peer, PRUNE_BACKOFF_S, now)
            return [_pruned(topic, peer)]
        members.setdefault(peer, now)
        return []

    def _excuse_new(self, topic: str, peer: PeerId, now: float) -> bool:
        """Return whether a peer grafts that may have been started again, and forgot its back-off.

        That excuses one GRAFT of a connection, and the back-off ends when it would have.
        """
        backoff = self._backoffs.get((topic, peer))
        if backoff is None or backoff.until <= now or (topic, peer) in self._excused_anew:
            return False
        if self._open_since.get(peer, backoff.since) <= backoff.since:
            return False
        self._excused_anew.add((topic, peer))
        return True

    def _charge_graft(self, topic: str, peer: PeerId, now: float) -> list[Event]:
        backoff = self._backoffs.get((topic, peer))
        if backoff is None or backoff.until - now <= _BACKOFF_SLACK_S:
            return []
        # It may have been on its way when our PRUNE was: that excuses one, not a second.
        is_excused = now - backoff.since <= _CROSSING_S and (topic, peer) not in self._excused
        self._excused.add((topic, peer))
        return [] if is_excused else [Misbehaviour(peer, Cause.BROKEN_BACKOFF)]

    def pruned(self, topic: str, peer: PeerId, seconds: int, now: float) -> None:
        """Leave a peer alone that sent PRUNE; of unknown topics it is ignored."""
        if topic in self.members:
            self._hold_off(topic, peer, min(seconds or PRUNE_BACKOFF_S, MAX_BACKOFF_S), now)
            self.members[topic].pop(peer, None)

    # With each heartbeat

    def tend(self, now: float) -> list[SendRpc]:
        """Keep each mesh at its size, of peers that are there and fit."""
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
        self._forget_backoffs(now)
        return sends

    def _drop_unfit(self, topic: str, now: float) -> list[SendRpc]:
        members, subscribers = self.members[topic], self._peers.of(topic)
        reachable = self._peers.reachable
        for peer in [p for p in members if p not in subscribers or p not in reachable]:
            del members[peer]
        unfit = [peer for peer in members if not self.is_fit(peer)]
        return [send for peer in unfit for send in self._prune(topic, peer, now)]

    def _prune_worst(
        self, topic: str, count: int, peers: list[PeerId], now: float
    ) -> list[SendRpc]:
        """Prune those of `peers` with the lowest scores.

        Of equal scores the members of most worth go last, and the others at random: strangers that
        bring nothing, and graft again and again, replace nobody who does. The last few that this
        node dialled stay.
        """
        self._rng.shuffle(peers)
        ranks = {peer: self._rank(peer) for peer in self.members[topic]}
        worthiest = sorted((p for p in ranks if ranks[p] > 0), key=lambda p: -ranks[p])
        staying = set(worthiest[: self._shape.degree_score])
        peers.sort(key=lambda peer: (self._score(peer), peer in staying))
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
        """Take in peers that this node dialled, while the mesh has too few of them."""
        missing = self._shape.degree_out - self._num_dialled(topic)
        if missing <= 0 or len(self.members[topic]) < self._shape.degree_low:
            return []
        return self._graft_some(topic, missing, now, dialled_only=True)

    def _mix(self, topic: str, now: float) -> list[SendRpc]:
        """Take a peer from outside into a mesh that is due."""
        old = list(self.members[topic])
        if len(old) < self._shape.degree_low or now < self._mix_due[topic]:
            return []
        newcomers = self._graft_some(topic, 1, now)
        if not newcomers:
            return []
        self._put_off_mixing(topic, now)
        surplus = len(old) + 1 - self._shape.degree
        return newcomers + self._prune_worst(topic, min(surplus, _MOST_LEAVING), old, now)

    def _put_off_mixing(self, topic: str, now: float) -> None:
        self._mix_due[topic] = now + MIX_EVERY_S * self._rng.uniform(0.5, 1.5)

    def _forget_backoffs(self, now: float) -> None:
        if now < self._tidy_at:
            return
        self._tidy_at = now + LOOK_S
        self._backoffs = {key: b for key, b in self._backoffs.items() if b.until > now}
        self._excused &= self._backoffs.keys()


def _pruned(topic: str, peer: PeerId, seconds: int = PRUNE_BACKOFF_S) -> SendRpc:
    return SendRpc(peer, Rpc(prune=[(topic, seconds)]))
