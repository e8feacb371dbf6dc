"""The production mesh over the simulated network: no streams, no bytes, no waiting tasks.

`Gossip` with the settings of the real one. RPCs travel as Python objects. Messages may be lost;
control is not, because it is small and repeated. Gossip's own signatures are a flag; those of the
envelopes inside are real.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from shoal_base.bounded import BoundedDict
from shoal_lab.simulation.host import SimulatedHost
from shoal_lab.simulation.message import reject_reason, say
from shoal_p2p.gossip.driver import MeshGossip
from shoal_p2p.gossip.interface import PeerScorer
from shoal_p2p.gossip.rpc import Message, Rpc
from shoal_p2p.gossip.settings import GossipSettings
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict

_MAX_HELD = 4096
"""Most RPCs of a paused peer. TCP would slow it down; here the oldest are lost."""
_LEAST_PAUSE_S = 0.05
"""Five grains of the network's time; otherwise a tiny debt would stop the clock from advancing."""
_MESSAGE_BYTES = 270
"""Topic, author, key, number and signature of one message, as measured in
docs/contributing/benchmarks.md."""
_CONTROL_BYTES = 100  # an RPC's head and a topic; a guess
_ID_BYTES = 48  # a message id with its framing; a guess
_MAX_TRACED = 4096
"""Messages whose hops are stored; a node carries about a hundred in a heartbeat."""


def _alone(message: Message) -> Rpc:
    """Return the RPC that carries one message, the same to every peer."""
    return Rpc(messages=(message,), num_bytes=len(message.data) + _MESSAGE_BYTES)


class SimulatedGossip(MeshGossip):
    """One host's gossip; it lives as long as the host runs."""

    def __init__(
        self,
        host: SimulatedHost,
        rng: random.Random,
        *,
        scorer: PeerScorer,
        settings: GossipSettings | None = None,
        first_sequence: int = 1,
    ) -> None:
        """`first_sequence` must be above every number of an earlier life."""
        settings = settings or GossipSettings()
        super().__init__(
            host.peer_id,
            scorer=scorer,
            settings=settings,
            rng=rng,
        )
        self._host = host
        self._network = host.network
        self._rng = rng
        self._sequence = first_sequence
        self._running = False
        self._held: dict[PeerId, deque[tuple[Rpc, int]]] = {}
        """Queued messages of paused peers, and the number of hops of each."""
        self._hops_of: BoundedDict[bytes, int] = BoundedDict(_MAX_TRACED)
        self.hops: Counter[int] = Counter()
        """Valid messages, by number of hops."""
        host.gossip = self
        host.attach(self)
        host.add_peer_callbacks(connected=self._greet, disconnected=self._forget)

    def reject_reason(self, message: Message) -> Reason | None:
        return reject_reason(message, self._settings.limits.max_message_bytes)

    def pack(self, message: Message) -> Rpc:
        return _alone(message)

    def _source_of(self, peer: PeerId) -> str:
        return self._host.source_of(peer)

    def start(self) -> None:
        """Start the heartbeat, at a different phase than other nodes."""
        self._running = True
        first_s = self._rng.randrange(4) / 4 * self._settings.mesh.heartbeat_s
        self._network.call_at(trio.current_time() + first_s, self._beat_and_go_on)

    def stop(self) -> None:
        """Stop the heartbeat: the node is gone."""
        self._running = False

    def _beat_and_go_on(self) -> None:
        if self._running:
            self._heartbeat()
            next_s = trio.current_time() + self._settings.mesh.heartbeat_s
            self._network.call_at(next_s, self._beat_and_go_on)

    async def publish(self, topic: str, data: bytes) -> int:
        """Send to the mesh, filled up to its degree; return the number of peers."""
        self._refuse_oversize(data)
        await trio.lowlevel.checkpoint()
        self._sequence += 1
        now = trio.current_time()
        return self.send(say(self._host.peer_id, self._sequence, topic, data, sent_s=now))

    def send(self, message: Message) -> int:
        """Send any message, also one that is not this node's, as an attacker may."""
        return self._perform((self._mesh.publish(message, trio.current_time()),))

    # Peers

    def _greet(self, peer_id: PeerId) -> None:
        self._mesh.on_reading(peer_id)
        is_dialled = self._host.is_dialled(peer_id)
        self._perform(
            self._mesh.on_stream_opened(peer_id, trio.current_time(), is_dialled=is_dialled)
        )

    def _forget(self, peer_id: PeerId) -> None:
        self._mesh.on_stream_closed(peer_id)
        self._mesh.on_reading_ended(peer_id)

    # Outbound

    def _send(self, peer: PeerId, rpc: Rpc) -> None:
        """Carry subscriptions and control, without loss."""
        network, me = self._network, self._host.peer_id
        num_ids = len(rpc.subscriptions) + sum(map(len, rpc.id_lists))
        network.bytes_of[me] += _CONTROL_BYTES + num_ids * _ID_BYTES
        due = network.time() + network.latency(me, peer)

        def arrive() -> None:
            host = network.host(peer)
            if host is None or not host.is_connected(me) or not network.reaches(me, peer):
                return
            if host.gossip is not None:
                host.gossip.take(rpc, me)

        if rpc.num_entries or rpc.subscriptions:
            network.call_at(due, arrive)

    def _push(self, peer: PeerId, frame: Rpc) -> bool:
        self._carry(peer, frame, self._hops_of.get(frame.messages[0].id, 0) + 1)
        return True

    def pass_on(self, peer: PeerId, message: Message, hops: int = 1) -> None:
        """Carry a message to a peer; it has made `hops` hops so far."""
        self._carry(peer, _alone(message), hops)

    def _carry(self, peer: PeerId, rpc: Rpc, hops: int) -> None:
        me = self._host.peer_id
        self._network.send(
            me, peer, lambda host: host.gossip.take(rpc, me, hops), num_bytes=rpc.num_bytes
        )

    def _spawn(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        self._host.start_soon(task, *arguments)

    # Inbound

    def take(self, rpc: Rpc, peer: PeerId, hops: int = 1) -> None:
        """Handle an RPC; those of a paused peer are queued."""
        held = self._held.get(peer)
        if held is not None:
            held.append((rpc, hops))
        elif not self._mesh.is_graylisted(peer):
            for message in rpc.messages:
                self._hops_of.setdefault(message.id, hops)
            events = self._mesh.receive(peer, rpc, self._network.time())
            if events:
                self._perform(events)
            self._hold_back(peer)

    def _hold_back(self, peer: PeerId) -> None:
        """Pause reading from a peer that exceeds its rate."""
        pause = self._mesh.pause(peer, self._network.time())
        if pause is None:
            for rpc, hops in self._held.pop(peer, ()):
                self.take(rpc, peer, hops)
            return
        pause = pause._replace(seconds=max(_LEAST_PAUSE_S, pause.seconds))
        self._held.setdefault(peer, deque(maxlen=_MAX_HELD))

        def go_on() -> None:
            self._perform(self._mesh.on_pause_ended(peer, pause, trio.current_time()))
            self._hold_back(peer)

        self._network.call_at(trio.current_time() + pause.seconds, go_on)

    async def _verdict(self, peer: PeerId, message: Message) -> Verdict:
        judged = await super()._verdict(peer, message)
        if judged.outcome is Outcome.ACCEPT:
            self.hops[self._hops_of.get(message.id, 1)] += 1
        return judged
