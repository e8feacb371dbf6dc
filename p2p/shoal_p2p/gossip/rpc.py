"""Plain values: the RPCs between gossip peers, and the events from the mesh to its driver. Pure.

`Rpc` is gossipsub's RPC (protocol versions 1.0 to 1.2); `codec.py` converts it to protobuf. The
driver performs the events in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import Verdict


class Message(NamedTuple):
    """One message as signed by its author."""

    id: bytes
    """Author and sequence number, the default message id of pubsub."""
    author: PeerId
    """Empty if the message names no ed25519 key."""
    topics: tuple[str, ...]
    """Exactly one topic in a valid message."""
    data: bytes
    signed: Any = None
    """The message in the driver's form, for verifying and sending. The mesh only passes it on."""
    sent_s: float | None = None
    """Time of sending by the author's clock, in seconds; None if unknown."""


class Rpc(NamedTuple):
    """One RPC, or a part of a long one."""

    subscriptions: Sequence[tuple[str, bool]] = ()
    """Topics, and whether the sender joins (True) or leaves."""
    messages: Sequence[Message] = ()
    ihave: Sequence[tuple[str, Sequence[bytes]]] = ()
    iwant: Sequence[Sequence[bytes]] = ()
    graft: Sequence[str] = ()
    prune: Sequence[tuple[str, int]] = ()
    """Topics, and the back-off in seconds during which the receiver must not graft."""
    idontwant: Sequence[Sequence[bytes]] = ()
    num_bytes: int = 0
    """Length on the wire."""
    num_skipped: int = 0
    """Messages beyond the limit, which are not processed."""

    @property
    def id_lists(self) -> list[Sequence[bytes]]:
        """The lists of message ids in its control entries."""
        return [*(ids for _, ids in self.ihave), *self.iwant, *self.idontwant]

    @property
    def num_entries(self) -> int:
        """Control entries of all kinds."""
        return sum(map(len, (self.ihave, self.iwant, self.graft, self.prune, self.idontwant)))


class SendRpc(NamedTuple):
    """Send subscriptions or control messages to a peer, ahead of queued messages."""

    peer: PeerId
    rpc: Rpc


class Forward(NamedTuple):
    """Send a message to peers. A peer whose queue is full is skipped."""

    peers: Sequence[PeerId]
    frame: Any
    """The message as encoded by the driver's `pack`."""


class MessageReceived(NamedTuple):
    """A message that may be new: call `Mesh.admit` once the peer has a free slot."""

    peer: PeerId
    message: Message


class Validate(NamedTuple):
    """Run the topic's validator on an authentic message, then call `Mesh.on_verdict`."""

    peer: PeerId
    message: Message


class JudgedMessage(NamedTuple):
    """Report a verdict to the scorer; see `interface.PeerScorer.on_verdict`."""

    forwarder: PeerId
    author: PeerId | None
    verdict: Verdict


class Misbehaviour(NamedTuple):
    """Report misbehaviour that is not a validation result to the scorer."""

    peer: PeerId
    cause: Cause


Event = SendRpc | Forward | MessageReceived | Validate | JudgedMessage | Misbehaviour


def merge_sends(sends: Sequence[SendRpc]) -> list[SendRpc]:
    """Return one RPC for each peer, with all its control messages in `sends`."""
    by_peer: dict[PeerId, list[Rpc]] = {}
    for peer, rpc in sends:
        by_peer.setdefault(peer, []).append(rpc)
    return [SendRpc(peer, _merge_rpcs(rpcs)) for peer, rpcs in by_peer.items()]


def _merge_rpcs(rpcs: Sequence[Rpc]) -> Rpc:
    if len(rpcs) == 1:
        return rpcs[0]
    return Rpc(
        ihave=[entry for rpc in rpcs for entry in rpc.ihave],
        iwant=[entry for rpc in rpcs for entry in rpc.iwant],
        graft=[entry for rpc in rpcs for entry in rpc.graft],
        prune=[entry for rpc in rpcs for entry in rpc.prune],
        idontwant=[entry for rpc in rpcs for entry in rpc.idontwant],
    )
