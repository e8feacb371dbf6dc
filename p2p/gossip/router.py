"""GossipSub with its losses, leaks and amplifiers removed.

Replaced in py-libp2p 0.8.1's router: the publish path (spam protection forwarding ten messages a
second, a signed peer record rebuilt for every RPC, queues of pending messages), the replay of
cached messages beside the sender task, opportunistic grafting and peer replacement (random churn
while all scores are equal), equivocation memory (our envelope layer detects it), unbounded
answers to IHAVE and IWANT, and the scorer, of which only the application's score remains.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import trio
from libp2p.abc import INetStream
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import (
    PROTOCOL_ID,
    PROTOCOL_ID_V11,
    PROTOCOL_ID_V12,
    GossipSub,
)
from libp2p.pubsub.pb import rpc_pb2

from p2p.gossip.message_cache import FrameCache
from p2p.gossip.messages import message_id
from p2p.gossip.mixing import MOST_LEAVING, MeshMixer
from p2p.gossip.offers import OfferBook
from p2p.gossip.outbound import OutboundQueue
from p2p.gossip.scorer import AppScorer, MeshSettings
from p2p.gossip.wants import Known, WantBook
from p2p.standing.scoring import Cause

logger = logging.getLogger(__name__)

_MAX_CONTROL_ENTRIES = 64
"""Entries of one kind read from one RPC."""
_MAX_IDS_PER_HEARTBEAT = 4096
"""Message ids heeded from one peer between two heartbeats, and offered to one."""
_MAX_REPEATS = 3
"""Times one message is sent to one peer on request (go-libp2p's GossipRetransmission)."""
_MAX_BACKOFF_S = 600
_MAX_ID_BYTES = 256
_SPAM_ENTRIES = 2048
_SPAM_IDS = 4 * _MAX_IDS_PER_HEARTBEAT
"""Control entries, and ids, of one peer between two heartbeats from which on it is spam. Other
implementations offer up to 5,000 ids at a time, so not all that goes unheeded is an offence."""
_BACKOFF_SLACK_S = 5.0
"""The two ends count a back-off from different moments, in whole seconds."""
_CROSSING_S = 3.0
"""A GRAFT so soon after our PRUNE may have crossed it."""


class KnownPeers(Known, Protocol):
    """What the router asks of the pubsub service it belongs to."""

    peers: Mapping[ID, INetStream]
    """Outbound streams."""
    peer_queues: Mapping[ID, OutboundQueue]
    peer_topics: Mapping[str, set[ID]]


class GossipRouter(GossipSub):
    """The mesh of each topic and what is sent over it."""

    pubsub: KnownPeers

    def __init__(
        self,
        mesh: MeshSettings,
        *,
        score: Callable[[ID], float],
        charge: Callable[[ID, Cause], None],
    ) -> None:
        """`score` says what a peer is worth, `charge` learns what it did against the rules."""
        super().__init__(
            protocols=[PROTOCOL_ID_V12, PROTOCOL_ID_V11, PROTOCOL_ID],
            degree=mesh.degree,
            degree_low=mesh.degree_low,
            degree_high=mesh.degree_high,
            heartbeat_interval=mesh.heartbeat_s,
            max_idontwant_messages=_MAX_IDS_PER_HEARTBEAT,
            adaptive_gossip_enabled=False,
            spam_protection_enabled=False,
            eclipse_protection_enabled=False,
        )
        self.mcache: FrameCache = FrameCache(self.mcache.window_size, self.mcache.history_size)
        self._settings = mesh
        self.scorer: AppScorer = AppScorer(mesh, score)
        self._mixer = MeshMixer(random.Random())
        self._offers = OfferBook[ID](_MAX_IDS_PER_HEARTBEAT)
        self._wants = WantBook[ID](max_ids=_MAX_IDS_PER_HEARTBEAT)
        self._since: dict[tuple[str, ID], float] = {}
        self._excused: set[tuple[str, ID]] = set()
        """Who has sent one GRAFT into a back-off that may have crossed our PRUNE."""
        self._heeded: Counter[ID] = Counter()
        self._resent: Counter[tuple[ID, bytes]] = Counter()
        self._control_entries: Counter[ID] = Counter()
        self._control_ids: Counter[ID] = Counter()
        self._charge = charge
        self.num_faults = 0

    # Sending

    async def publish(self, msg_forwarder: ID, pubsub_msg: rpc_pb2.Message) -> None:
        """Forward a valid message to the mesh, without waiting for slow peers."""
        self.forward(pubsub_msg, self.targets(pubsub_msg, msg_forwarder))

    def forward(self, message: rpc_pb2.Message, peers: Iterable[ID]) -> int:
        """Queue `message` for `peers`, encoded once; return how many queues took it."""
        frame = self.mcache.keep(message)
        return sum(self._push_frame(peer, frame) for peer in peers)

    def targets(self, message: rpc_pb2.Message, forwarder: ID) -> list[ID]:
        """Return the mesh peers that still need `message`."""
        return list(
            self._get_peers_to_send(
                message.topicIDs, forwarder, ID(message.from_id), message_id(message)
            )
        )

    def own_targets(self, message: rpc_pb2.Message, own_id: ID) -> list[ID]:
        """Mesh peers, filled up to the degree: an own message must not wait for the mesh."""
        found = self.targets(message, own_id)
        topic = message.topicIDs[0]
        others = [
            peer
            for peer in self.pubsub.peer_topics.get(topic, ())
            if peer not in found and self.scorer.allow_gossip(peer, [topic])
        ]
        random.shuffle(others)
        return found + others[: max(0, self.degree - len(found))]

    def _push_frame(self, peer: ID, frame: bytes) -> bool:
        queue: OutboundQueue | None = self.pubsub.peer_queues.get(peer)
        return queue is not None and queue.push_frame(frame)

    def send_rpc(self, peer_id: ID, rpc: rpc_pb2.RPC, priority: bool = False) -> None:
        """Queue a control RPC; one that was refused is merged into the next."""
        queue: OutboundQueue | None = self.pubsub.peer_queues.get(peer_id)
        if queue is None:
            return
        self._piggyback_control_retry(peer_id, rpc)
        if not queue.push(rpc, priority=priority):
            self._handle_dropped_rpc(peer_id, rpc, "queue_full")

    async def emit_control_message(self, control_msg: rpc_pb2.ControlMessage, to_peer: ID) -> None:
        """Send `control_msg` without the signed peer record the library adds to every RPC."""
        self.send_rpc(to_peer, rpc_pb2.RPC(control=control_msg), priority=True)

    async def announce_large(self, message: rpc_pb2.Message, forwarder: ID) -> None:
        """Tell the mesh at once not to send us a large message again (gossipsub v1.2)."""
        if len(message.data) < self._settings.idontwant_bytes:
            return
        control = rpc_pb2.ControlMessage(
            idontwant=[rpc_pb2.ControlIDontWant(messageIDs=[message_id(message)])]
        )
        for peer in self.mesh.get(message.topicIDs[0], ()):
            if peer != forwarder and self.peer_protocol.get(peer) == PROTOCOL_ID_V12:
                await self.emit_control_message(control, peer)

    async def send_recent_messages(self, peer_id: ID, topic: str) -> None:
        """Never: the library writes them beside the sender task, which corrupts the stream."""

    async def flush_pending_messages(self, peer_id: ID) -> None:
        """Never: same, and nothing is pending here."""

    # Receiving

    async def handle_rpc(self, rpc: rpc_pb2.RPC, sender_peer_id: ID) -> None:
        """Heed the control part of an RPC, within what one peer may ask for."""
        control, cap = rpc.control, _MAX_CONTROL_ENTRIES
        if self._is_spam(control, sender_peer_id):
            return
        for ihave in control.ihave[:cap]:
            await self.handle_ihave(ihave, sender_peer_id)
        for iwant in control.iwant[:cap]:
            await self.handle_iwant(iwant, sender_peer_id)
        for graft in control.graft[:cap]:
            await self.handle_graft(graft, sender_peer_id)
        for prune in control.prune[:cap]:
            await self.handle_prune(prune, sender_peer_id)
        for idontwant in control.idontwant[:cap]:
            await self._note_unwanted(idontwant, sender_peer_id)

    def _is_spam(self, control: rpc_pb2.ControlMessage, peer: ID) -> bool:
        """Count what a peer asks between two heartbeats; charge it once when it is too much."""
        lists = (control.ihave, control.iwant, control.idontwant)
        entries = sum(len(each) for each in lists) + len(control.graft) + len(control.prune)
        ids = sum(len(entry.messageIDs) for entries_ in lists for entry in entries_[:_SPAM_ENTRIES])
        before = self._control_entries[peer], self._control_ids[peer]
        self._control_entries[peer] += entries
        self._control_ids[peer] += ids
        is_spam = self._over(peer)
        if is_spam and before[0] <= _SPAM_ENTRIES and before[1] <= _SPAM_IDS:
            self._charge(peer, Cause.CONTROL_SPAM)
        return is_spam

    def _over(self, peer: ID) -> bool:
        return self._control_entries[peer] > _SPAM_ENTRIES or self._control_ids[peer] > _SPAM_IDS

    def _heed(self, peer: ID, ids: Iterable[bytes]) -> list[bytes]:
        """Return the distinct `ids` that are within the peer's allowance, and charge it."""
        left = _MAX_IDS_PER_HEARTBEAT - self._heeded[peer]
        found = [i for i in dict.fromkeys(ids) if len(i) <= _MAX_ID_BYTES][: max(0, left)]
        self._heeded[peer] += len(found)
        return found

    async def handle_ihave(self, ihave_msg: rpc_pb2.ControlIHave, sender_peer_id: ID) -> None:
        """Ask for what we have not seen, of one peer a second."""
        if ihave_msg.topicID not in self.mesh:
            return
        offered = self._heed(sender_peer_id, ihave_msg.messageIDs)
        for key in offered:
            if self.pubsub.knows(key):
                self._offers.note_holder(sender_peer_id, key)
        wanted = self._wants.offered(sender_peer_id, offered, self.pubsub, trio.current_time())
        if wanted:
            self._wants.asked(sender_peer_id, wanted, trio.current_time())
            await self.emit_iwant(wanted, sender_peer_id)

    async def _ask_others(self) -> None:
        """Ask for what has not come, or was dropped in our own trouble, of who else offered it."""
        now = trio.current_time()
        for peer, keys in self._wants.still_wanted(self.pubsub, now).items():
            if peer in self.pubsub.peers:
                self._wants.asked_late(keys, now)
                await self.emit_iwant(keys, peer)

    def note_sent(self, peer: ID, key: bytes) -> None:
        """`peer` has sent a message: if it had promised to, it has kept its word."""
        self._wants.came(peer, key)

    def left_unread(self, peer: ID, seconds: float) -> None:
        """`peer` was not read for so long: what it has sent may not be here yet."""
        self._wants.left_unread(peer, seconds, trio.current_time())

    def note_holder(self, peer: ID, key: bytes) -> None:
        """`peer` has sent or written a message that we know: it needs no offer of it."""
        self._offers.note_holder(peer, key)

    async def handle_iwant(self, iwant_msg: rpc_pb2.ControlIWant, sender_peer_id: ID) -> None:
        """Send what is asked for and still cached, each message at most three times."""
        for key in self._heed(sender_peer_id, iwant_msg.messageIDs):
            frame = self.mcache.frame(key)
            if frame is None or self._resent[sender_peer_id, key] >= _MAX_REPEATS:
                continue
            self._resent[sender_peer_id, key] += 1
            self._push_frame(sender_peer_id, frame)

    async def handle_graft(self, graft_msg: rpc_pb2.ControlGraft, sender_peer_id: ID) -> None:
        """Take a peer into a mesh; one below the gossip threshold is sent away."""
        topic = graft_msg.topicID
        left_s = self.back_off.get(topic, {}).get(sender_peer_id, 0) - time.time()
        if topic in self.mesh and left_s > _BACKOFF_SLACK_S:
            # It may have been on its way when our PRUNE was: that excuses one, not a second.
            crossed = self.prune_back_off - left_s <= _CROSSING_S
            if not crossed or (topic, sender_peer_id) in self._excused:
                self._charge(sender_peer_id, Cause.BROKEN_BACKOFF)
            self._excused.add((topic, sender_peer_id))
        if topic in self.mesh and not self.scorer.allow_gossip(sender_peer_id, [topic]):
            await self.emit_prune(topic, sender_peer_id, False, False)
            return
        await super().handle_graft(graft_msg, sender_peer_id)

    async def on_peer_subscribed(self, peer_id: ID, topic: str) -> None:
        """Graft a new subscriber at once while the mesh is small."""
        if self.scorer.allow_gossip(peer_id, [topic]):
            await super().on_peer_subscribed(peer_id, topic)

    def _get_in_topic_gossipsub_peers_from_minus(
        self, topic: str, num_to_select: int, minus: Iterable[ID], backoff_check: bool = False
    ) -> list[ID]:
        """Choose among the peers of `topic` that are above the gossip threshold."""
        unfit = [
            peer
            for peer in self.pubsub.peer_topics.get(topic, ())
            if not self.scorer.allow_gossip(peer, [topic])
        ]
        if topic not in self.pubsub.peer_topics:
            return []
        return list(
            super()._get_in_topic_gossipsub_peers_from_minus(
                topic, num_to_select, [*minus, *unfit], backoff_check
            )
        )

    async def handle_prune(self, prune_msg: rpc_pb2.ControlPrune, sender_peer_id: ID) -> None:
        """Leave a mesh; ignores unknown topics, endless back-offs and offers of other peers."""
        if prune_msg.topicID not in self.mesh:
            return
        backoff = min(prune_msg.backoff, _MAX_BACKOFF_S)
        await super().handle_prune(
            rpc_pb2.ControlPrune(topicID=prune_msg.topicID, backoff=backoff), sender_peer_id
        )

    async def _note_unwanted(self, idontwant: rpc_pb2.ControlIDontWant, sender: ID) -> None:
        known = self.dont_send_message_ids.get(sender)
        if known is not None and len(known) < _MAX_IDS_PER_HEARTBEAT:
            known.update(self._heed(sender, idontwant.messageIDs))

    # Heartbeat

    async def heartbeat(self) -> None:
        """Beat for ever; a fault of one beat is logged and counted, not fatal."""
        await trio.sleep(self.heartbeat_initial_delay)
        while True:
            try:
                await self._beat()
            except Exception:  # library code over peers' data; the node must outlive it
                self.num_faults += 1
                logger.exception("gossip heartbeat failed")
            await trio.sleep(self.heartbeat_interval)

    async def _beat(self) -> None:
        unfit = self._drop_lost_peers()
        to_graft, to_prune = self.mesh_heartbeat()
        for peer, topics in unfit.items():
            to_prune[peer].extend(topics)
        for peer, topics in to_prune.items():
            for topic in topics:
                # Whom we prune charges us for a graft before its back-off is over.
                self._add_back_off(peer, topic, False)
        self._mix(to_graft, to_prune)
        await self._emit_control_msgs(to_graft, to_prune, self._to_offer())
        await self._ask_others()
        self.mcache.shift()
        self._offers.keep_only(self.pubsub.peers, self.mcache)
        self._prune_idontwant_entries()
        self._heeded.clear()
        self._control_entries.clear()
        self._control_ids.clear()
        self._resent = Counter({k: n for k, n in self._resent.items() if k[1] in self.mcache})
        now = trio.current_time()
        for peer in self._wants.broken(self.pubsub.peers, self.pubsub, now):
            self._charge(peer, Cause.BROKEN_PROMISE)
        self._wants.forget(now)
        self._forget_back_offs()
        self._track_since()

    def _mix(self, to_graft: dict[ID, list[str]], to_prune: dict[ID, list[str]]) -> None:
        """Take a peer from outside into each mesh that is due (`p2p.gossip.mixing` says why)."""
        now = trio.current_time()
        self._mixer.keep_only(self.mesh)
        for topic, members in self.mesh.items():
            if len(members) < self.degree_low or not self._mixer.is_due(topic, now):
                continue
            newcomers = self._get_in_topic_gossipsub_peers_from_minus(topic, 1, members, True)
            surplus = len(members) + 1 - self.degree
            leaving = self._select_peers_for_pruning(topic, min(surplus, MOST_LEAVING))
            for peer in newcomers:
                self._mixer.mixed(topic, now)
                members.add(peer)
                self._notify_mesh_peer_added(peer, topic)
                to_graft[peer].append(topic)
            for peer in leaving if newcomers else ():
                members.discard(peer)
                self._add_back_off(peer, topic, False)
                to_prune[peer].append(topic)

    def _drop_lost_peers(self) -> dict[ID, list[str]]:
        """Keep in each mesh who is connected, subscribed and above the gossip threshold.

        Returns the topics to tell each peer of that was dropped for its score.
        """
        unfit: dict[ID, list[str]] = {}
        for topic, peers in self.mesh.items():
            peers &= self.pubsub.peers.keys() & self.pubsub.peer_topics.get(topic, set())
            for peer in [p for p in peers if not self.scorer.allow_gossip(p, [topic])]:
                peers.discard(peer)
                unfit.setdefault(peer, []).append(topic)
        return unfit

    def _to_offer(self) -> dict[ID, dict[str, list[bytes]]]:
        """Offer recent ids to peers outside the mesh, and in small swarms to all, once: it is the
        quickest repair of a message that a full queue or a busy validator dropped."""
        offers: dict[ID, dict[str, list[bytes]]] = {}
        for topic, mesh in self.mesh.items():
            ids = self.mcache.window(topic)[-_MAX_IDS_PER_HEARTBEAT // 4 :]
            peers = list(self.pubsub.peer_topics.get(topic, ()))
            if len(peers) > self.degree_high:
                outside = [peer for peer in peers if peer not in mesh]
                count = max(self.degree, len(outside) // 4)
                peers = random.sample(outside, min(count, len(outside)))
            for peer in peers if ids else ():
                if (
                    self._is_idle(peer)
                    and self.scorer.allow_gossip(peer, [topic])
                    and (news := self._offers.news(peer, ids))
                ):
                    offers.setdefault(peer, {})[topic] = news
        return offers

    def _is_idle(self, peer: ID) -> bool:
        """True if no data waits for `peer`. An offer overtakes data, so the peer would ask for
        what is on its way already, and the answers would make a congested queue longer."""
        queue: OutboundQueue | None = self.pubsub.peer_queues.get(peer)
        return queue is not None and not queue.has_data

    async def _emit_control_msgs(
        self,
        peers_to_graft: dict[ID, list[str]],
        peers_to_prune: dict[ID, list[str]],
        peers_to_gossip: dict[ID, dict[str, list[bytes]]],
    ) -> None:
        """Send each peer its own grafts, prunes and offers (the library mixes up the peers)."""
        for peer in {**peers_to_graft, **peers_to_prune, **peers_to_gossip}:
            control = rpc_pb2.ControlMessage(
                graft=[rpc_pb2.ControlGraft(topicID=t) for t in peers_to_graft.get(peer, ())],
                prune=[
                    rpc_pb2.ControlPrune(topicID=t, backoff=self.prune_back_off)
                    for t in peers_to_prune.get(peer, ())
                ],
                ihave=[
                    rpc_pb2.ControlIHave(topicID=topic, messageIDs=ids)
                    for topic, ids in peers_to_gossip.get(peer, {}).items()
                ],
            )
            await self.emit_control_message(control, peer)

    def _perform_opportunistic_grafting(
        self, topic: str, peers_to_graft: dict[ID, list[str]]
    ) -> int:
        return 0

    def _select_peers_for_pruning(self, topic: str, num_to_prune: int) -> list[ID]:
        """The lowest scores go, at random among equals."""
        peers = list(self.mesh.get(topic, ()))
        random.shuffle(peers)
        peers.sort(key=lambda peer: self.scorer.score(peer, [topic]))
        return peers[: max(0, num_to_prune)]

    def _forget_back_offs(self) -> None:
        for topic, peers in list(self.back_off.items()):
            for peer in list(peers):
                self._check_back_off(peer, topic)
            if not peers:
                del self.back_off[topic]
        self._excused = {
            (topic, peer) for topic, peer in self._excused if peer in self.back_off.get(topic, {})
        }

    # Who is in the mesh, and since when

    def _notify_mesh_peer_added(self, peer_id: ID, topic: str) -> None:
        super()._notify_mesh_peer_added(peer_id, topic)
        self._since.setdefault((topic, peer_id), trio.current_time())

    def _track_since(self) -> None:
        members = {(topic, peer) for topic, peers in self.mesh.items() for peer in peers}
        self._since = {key: at for key, at in self._since.items() if key in members}

    def mesh_age_s(self, topic: str, peer: ID) -> float:
        """Return for how long `peer` has been in the mesh of `topic`, to a heartbeat."""
        now = trio.current_time()
        return now - self._since.get((topic, peer), now)

    def leave_meshes(self, peer: ID) -> None:
        """Take `peer` out of every mesh, because its subscriptions are unknown again."""
        for peers in self.mesh.values():
            peers.discard(peer)
