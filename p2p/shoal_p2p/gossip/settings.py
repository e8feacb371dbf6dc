"""Settings of the mesh, and limits for one peer and for all peers together. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from shoal_base.ranges import Bytes, Range, Ranged, Seconds
from shoal_p2p.gossip.rate_limiter import FloodLimits
from shoal_wire.limits import MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSettings(Ranged):
    """Mesh degrees and score thresholds of gossipsub v1.1."""

    degree_low: Annotated[int, Range("peers", 1, 1000)] = 3
    """With fewer members than this the mesh grafts, up to `degree` (D_low). This value and
    `degree_high` are guesses: `degree` minus two and plus three, where gossipsub has minus two and
    plus six."""
    degree_high: Annotated[int, Range("peers", "degree_low", 1000)] = 8
    """With more members than this the mesh prunes, down to `degree` (D_high). A mesh of this size
    accepts a GRAFT only from a peer that this node dialled or that has delivered messages."""
    degree: Annotated[int, Range("peers", "degree_low", "degree_high")] = 5
    """Target number of mesh members (gossipsub's D). The usual 6 costs a quarter more bytes. In 64
    meshes, one in five of them forwarding nothing, 99 % of deliveries took at most 0.2 s with 6,
    0.3 s with 5 and 0.9 s with 4 (the meshes of `benchmarks.scale`)."""
    degree_score: Annotated[int, Range("peers", 0, "degree_high")] = 3
    """Highest-ranked members that pruning keeps when scores are equal (D_score)."""
    degree_out: Annotated[int, Range("peers", 0, "degree_high")] = 2
    """Minimum number of members that this node dialled itself, if it has such connections (D_out).
    It keeps inbound peers from taking over a mesh."""
    heartbeat_s: Seconds = 1.0
    idontwant_bytes: Annotated[int, Range("bytes", 0, 1 << 40)] = 16 * 1024
    """Minimum message size for IDONTWANT. With links of 5 to 80 ms it avoids one copy in seven. For
    batches of 3 KB it would save 8 % of the bytes and add half as many frames again."""
    gossip_threshold: Annotated[float, Range("points", -1e6, 0)] = -10.0
    """A peer below this score gets no messages from this node and is in no mesh."""
    graylist_threshold: Annotated[float, Range("points", -1e6, "gossip_threshold")] = -40.0
    """RPCs of a peer below this score are not processed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipLimits(Ranged):
    """Limits for one peer and for all peers together."""

    max_message_bytes: Annotated[int, Range("bytes", 1, MAX_MESSAGE_BYTES)] = MAX_MESSAGE_BYTES
    max_queue_frames: Annotated[int, Range("frames", 1, 1 << 20)] = 1024
    max_queue_bytes: Bytes = 32 * 1024 * 1024
    """Outbound bytes queued for each peer. Queues share the frames themselves."""
    max_validating_per_peer: Annotated[int, Range("messages", 1, 10_000)] = 16
    """Messages of one peer under validation. At this limit its stream is not read."""
    seen_ttl_s: Seconds = 120.0
    max_seen_ids: Annotated[int, Range("ids", 1, 1 << 24)] = 200_000
    max_subscriptions_per_peer: Annotated[int, Range("topics", 1, 10_000)] = 512
    """Enough for the 256 families of a manifest, each with its own topic, undivided."""
    max_topic_chars: Annotated[int, Range("characters", 1, 1024)] = 256
    stream_deadline_s: Seconds = 10.0
    """Deadline for opening a pubsub stream, in seconds."""
    write_deadline_s: Seconds = 30.0
    """Deadline for writing one frame, or several small ones, in seconds. A slower reader is
    disconnected."""
    max_messages_per_rpc: Annotated[int, Range("messages", 1, 100_000)] = 1024
    """Messages read from one RPC. The rest is skipped and counted as waste."""
    flood: FloodLimits = field(default_factory=FloodLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipSettings(Ranged):
    """All settings of gossip: the mesh, limits and deadlines."""

    mesh: MeshSettings = field(default_factory=MeshSettings)
    limits: GossipLimits = field(default_factory=GossipLimits)
    validator_deadline_s: Seconds = 10.0
    """Longest time that a message waits for its verdict. Its sender is not read meanwhile, so an
    overloaded swarm sends less. With 2 s, 32 nodes at twice the load of their cores dropped a third
    of all messages and fetched them up to 80 s later (`benchmarks.delivery`)."""
    max_validating: Annotated[int, Range("messages", 1, 10_000)] = 64
    """Validators running at once, for all peers together. Other messages queue, within the
    deadline; the network with the fewest running validators is served first."""
    publish_deadline_s: Seconds = 5.0
    """Longest time that `publish` waits for capacity in full queues, in seconds."""
