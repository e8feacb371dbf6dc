"""The mesh's shape, and what one peer, and all peers together, may occupy. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal_p2p.gossip.rate_limiter import FloodLimits
from shoal_wire.limits import MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSettings:
    """The mesh's shape and the scores at which a peer loses its rights (gossipsub v1.1)."""

    degree: int = 5
    """Members that a mesh aims at. gossipsub's 6 costs a quarter more bytes: of 64 meshes, a fifth
    of which pass nothing on, 99 % of deliveries came within 0.2 s with 6, 0.3 s with 5, and up to
    0.9 s with 4 (`benchmarks.scale`'s meshes)."""
    degree_low: int = 3
    """Below so many members the mesh grafts, up to `degree`. A guess, as is `degree_high`: two less
    and three more than it, where gossipsub has two less and six more."""
    degree_high: int = 8
    """Above so many members the mesh prunes, down to `degree`. From so many on, only a peer that
    this node dialled, or that has brought something, is taken in when it asks."""
    degree_score: int = 3
    """Members that stay where others are as good, for what they brought (gossipsub's D_score)."""
    degree_out: int = 2
    """Members that this node dialled, at least, where it is connected to such (gossipsub's D_out):
    who comes by cannot have all places."""
    heartbeat_s: float = 1.0
    idontwant_bytes: int = 16 * 1024
    """IDONTWANT is sent for messages of at least this size. With links of 5 to 80 ms it spares one
    copy in seven: for batches of 3 KB 8 % of the bytes, for half as many frames again."""
    gossip_threshold: float = -10.0
    """Below this score a peer gets no messages from us and is in no mesh."""
    graylist_threshold: float = -40.0
    """Below this score nothing a peer sends is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipLimits:
    """Bounds on what one peer, and all peers together, may occupy."""

    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_queue_frames: int = 1024
    max_queue_bytes: int = 32 * 1024 * 1024
    """Outbound, for each peer. The frames themselves are shared between queues."""
    max_validating_per_peer: int = 16
    """Messages of one peer under validation; then its stream is not read."""
    seen_ttl_s: float = 120.0
    max_seen_ids: int = 200_000
    max_subscriptions_per_peer: int = 64
    max_topic_chars: int = 256
    stream_deadline_s: float = 10.0
    """Deadline for opening a pubsub stream, in seconds."""
    write_deadline_s: float = 30.0
    """Deadline for one frame, or some small ones, in seconds. A slower reader is cut."""
    max_messages_per_rpc: int = 1024
    """The rest of a longer RPC is not looked at, and counts as waste."""
    flood: FloodLimits = field(default_factory=FloodLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipSettings:
    """Mesh shape, bounds and deadlines of gossip."""

    mesh: MeshSettings = field(default_factory=MeshSettings)
    limits: GossipLimits = field(default_factory=GossipLimits)
    validator_deadline_s: float = 10.0
    """Longest wait of a message for its verdict. Meanwhile its sender is read no further, so that a
    swarm that is overloaded sends less; with 2 s 32 nodes at twice what their
    cores carry dropped a third of what came, and fetched it up to 80 s later
    (`benchmarks.delivery`)."""
    max_validating: int = 64
    """Validators running at once, all peers together. Others wait, within the deadline; the network
    with the fewest running goes first."""
    publish_deadline_s: float = 5.0
    """Longest wait of `publish` for peers whose queues are full, in seconds."""
