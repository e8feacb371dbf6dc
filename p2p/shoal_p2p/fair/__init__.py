"""Fair sharing of limited resources: slots, turns and rates.

    HierarchicalQuota    bounded storage: picks what is evicted, and samples fairly
    FairQueue            a waiting queue that serves the least-served first
    HierarchicalBuckets  rate limits by network and by identity
    AdaptiveRateLimit    one rate for all networks, part of which always stays free

Identities are free and IP networks are not, so quotas are hierarchical. A share key names the
levels, the widest first:

    network ─▶ origin: published by the peer, or forwarded ─▶ identity

The children of each level share equally, so any number of identities on one network gets what that
network would get with one. The origin stands below the network because a peer chooses it: above,
a network alone on its origin would get half of everything. A priority that this node assigns, such
as for peers with recent failures, may stand above the network.

docs/contributing/decisions.md lists the alternatives that were tried. All modules except `limiter`
are pure.
"""

ShareKey = tuple[str, ...]
"""The levels that a quota counts, the widest first: (network, …, identity)."""

PUBLISHED, FORWARDED = "published", "forwarded"
"""Origins below a network: a peer's own message, or one that it relays."""
