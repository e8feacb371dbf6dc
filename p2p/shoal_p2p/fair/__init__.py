"""The fairness kit: who is served, kept or drawn when there is not enough for everybody.

    ShareTree    who holds what: what a newcomer displaces, and fair draws
    FairQueue    who waits: the next is one of whoever has had least
    PathBuckets  who may do how much: rate limits by network and by name
    SpareRate    one rate for all networks, of which something is always left over

Names cost nothing and networks do, so everything here goes by a path, the widest part first:

    network ─▶ side: what its peers signed, or what they passed on ─▶ name

At each step all share alike, so any number of names on one network gets what that network would get
with one name.  The side stands below the network because a peer chooses it: above it, a network
that is alone on its side would have half of everything.  A priority that this node itself gives,
as to a peer that has failed it lately, may stand above the network.

docs/decisions.md says what else was tried.  All of it is pure but `limiter`.
"""

Path = tuple[str, ...]
"""The parties that something counts for, the widest first: (network, …, name)."""

SIGNED, PASSED_ON = "signed", "passed on"
"""The sides of a network."""
