"""The messages between peers of gossip, and the mesh's requests to its driver: plain values. Pure.

`Rpc` is gossipsub's RPC (protocol versions 1.0 to 1.2); `codec.py` has its protobuf. The driver
performs each `Event` in the order in which it gets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import Verdict


class Message(NamedTuple):
    """One message, as its author signed it."""

    id: bytes
    """Author and sequence number, the default message id of pubsub."""
    author: PeerId
    """Empty if the message names no ed25519 key."""
    topics: tuple[str, ...]
    """Valid messages have one."""
    data: bytes
    signed: Any = None
    """The message as the driver verifies and sends it; the mesh only hands it on."""
    sent_s: float | None = None
    """Time when its author sent it, by the author's clock in seconds; None if it does not say."""


class Rpc(NamedTuple):
    """One RPC, or a part of a long one."""

    subscriptions: Sequence[tuple[str, bool]] = ()
    """Topics, and whether the sender joins or leaves each."""
    messages: Sequence[Message] = ()
    ihave: Sequence[tuple[str, Sequence[bytes]]] = ()
    iwant: Sequence[Sequence[bytes]] = ()
    graft: Sequence[str] = ()
    prune: Sequence[tuple[str, int]] = ()
    """Topics, and for how many seconds the receiver must not graft."""
    idontwant: Sequence[Sequence[bytes]] = ()
    num_bytes: int = 0
    """Length on the wire."""
    num_left_out: int = 0
    """Messages beyond the limit, which nobody looks at."""

    @property
    def id_lists(self) -> list[Sequence[bytes]]:
        """The message ids that it names, by entry."""
        return [*(ids for _, ids in self.ihave), *self.iwant, *self.idontwant]

    @property
    def num_entries(self) -> int:
        """Control entries of all kinds."""
        return sum(map(len, (self.ihave, self.iwant, self.graft, self.prune, self.idontwant)))


class SendRpc(NamedTuple):
    """Send subscriptions or control to a peer, before the messages that wait for it."""

    peer: PeerId
    rpc: Rpc


class Forward(NamedTuple):
    """Send a message to peers; one whose queue is full goes without."""

    peers: Sequence[PeerId]
    frame: Any
    """The message as the driver's `pack` made it."""


class MessageReceived(NamedTuple):
    """A message that may be new: call `Mesh.admit` once the peer has a free slot."""

    peer: PeerId
    message: Message


class Validate(NamedTuple):
    """Ask the topic's validator about an authentic message, then call `Mesh.judged`."""

    peer: PeerId
    message: Message


class JudgedMessage(NamedTuple):
    """Tell the watch of a verdict; see `interface.Watch.on_verdict`."""

    forwarder: PeerId
    author: PeerId | None
    verdict: Verdict


class Misbehaviour(NamedTuple):
    """Tell the watch of a peer's behaviour, which no verdict shows."""

    peer: PeerId
    cause: Cause


Event = SendRpc | Forward | MessageReceived | Validate | JudgedMessage | Misbehaviour


def merged(sends: Sequence[SendRpc]) -> list[SendRpc]:
    """Return one RPC for each peer, with the control of all that `sends` has for it."""
    by_peer: dict[PeerId, list[Rpc]] = {}
    for peer, rpc in sends:
        by_peer.setdefault(peer, []).append(rpc)
    return [SendRpc(peer, _joined(rpcs)) for peer, rpcs in by_peer.items()]


def _joined(rpcs: Sequence[Rpc]) -> Rpc:
    if len(rpcs) == 1:
        return rpcs[0]
    return Rpc(
        ihave=[entry for rpc in rpcs for entry in rpc.ihave],
        iwant=[entry for rpc in rpcs for entry in rpc.iwant],
        graft=[entry for rpc in rpcs for entry in rpc.graft],
        prune=[entry for rpc in rpcs for entry in rpc.prune],
        idontwant=[entry for rpc in rpcs for entry in rpc.idontwant],
    )
