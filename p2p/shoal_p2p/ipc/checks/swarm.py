"""Checks of the connection to the swarm: peers, bootstraps, slots, key, clock, meshes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shoal_ipc.answers.doctor import BootstrapSeen, Finding, State
from shoal_ipc.answers.words import short_topic
from shoal_p2p.ipc.checks.seen import Seen, found
from shoal_p2p.net.access import DUPLICATE_KEY_CAUSE, DUPLICATE_KEY_REMEDY
from shoal_p2p.peers.skew import skew_of

_SLOW_MS: Final = 1000.0
"""A longer round trip delays every request to that bootstrap by seconds."""
FULL_REMEDY: Final = (
    "wait; if it stays full, name another address (--bootstrap), or start it with a higher "
    "--max-connections"
)


def peers(seen: Seen) -> Iterator[Finding]:
    """Check whether any peer is connected."""
    if seen.status.peers:
        yield found("peers", f"{seen.status.peers} connected")
        return
    # A first node, and a bootstrap, have no peers until one joins: nothing is wrong with them.
    state: State = "bad" if seen.settled and seen.facts.bootstraps else "ok"
    yield found(
        "peers", f"none connected{'' if seen.settled else ' yet'}", state, _join_remedy(seen)
    )


def _join_remedy(seen: Seen) -> str:
    if seen.facts.bootstraps:
        return "see `bootstrap` below"
    if seen.status.role == "bootstrap":
        return "wait for peers: `shoal invite` prints the line with which they join"
    return (
        "`shoal invite` prints a line with which peers join; to join a swarm: --bootstrap ADDRESS"
    )


def bootstraps(seen: Seen) -> Iterator[Finding]:
    """Report each bootstrap address: its round trip, or the error."""
    for one in seen.facts.bootstraps:
        if one.full_backoff_s is not None:
            alone = not seen.status.peers
            yield found(
                "bootstrap",
                f"{one.address} is full: it disconnected this node, which tries again in "
                f"{one.full_backoff_s:.0f} s",
                "warn" if alone else "ok",
                FULL_REMEDY if alone else "",
            )
        elif one.latency_ms is None:
            yield _unreachable(one, seen)
        else:
            slow = one.latency_ms > _SLOW_MS
            yield found(
                "bootstrap",
                f"{one.address} answers in {one.latency_ms:.1f} ms",
                "warn" if slow else "ok",
                "the link is slow or that machine is overloaded" if slow else "",
            )


def _unreachable(one: BootstrapSeen, seen: Seen) -> Finding:
    answering = any(other.latency_ms is not None for other in seen.facts.bootstraps)
    key = seen.facts.key
    both = f", and that it has the same swarm key ({key.file})" if key else ""
    return found(
        "bootstrap",
        f"{one.address} {'cannot be joined' if one.remedy else 'does not answer'}: "
        f"{one.error or 'not connected'}",
        # One bootstrap is enough, and connected peers stay together without any.
        "warn" if answering or seen.status.peers else "bad",
        one.remedy
        or f"check that it runs and that the address is right{both}; the node keeps trying",
    )


def full(seen: Seen) -> Iterator[Finding]:
    """Check whether peers were disconnected or refused because no slot was free."""
    if (one := seen.facts.full) is not None:
        yield found(
            "full",
            f"full {one.ago_s:.0f} s ago, with {one.slots} slots; since the start "
            f"{one.disconnected} peers were disconnected to free a slot, and {one.refused} "
            "newcomers refused for now",
            "warn",
            "newcomers only wait longer; raise --max-connections (one network may have a quarter "
            "of it) and ulimit -n, or start another bootstrap",
        )


def swarm_key(seen: Seen) -> Iterator[Finding]:
    """Check whether a private swarm's key file still holds the key in use."""
    if (key := seen.facts.key) is not None:
        yield found(
            "swarm key",
            key.problem or f"a private swarm, with the key in {key.file}",
            "warn" if key.problem else "ok",
            "it still uses the key that it started with: restart it" if key.problem else "",
        )


def identity(seen: Seen) -> Iterator[Finding]:
    """Report another node that signs with this one's key, if peers have shown it."""
    if seen.status.duplicate_identity:
        yield found(
            "identity",
            "another node uses this identity, or this one's node.db was lost: peers ban both",
            "bad",
            f"it happens where {DUPLICATE_KEY_CAUSE}; {DUPLICATE_KEY_REMEDY}",
        )


def clock(seen: Seen) -> Iterator[Finding]:
    """Compare this clock with the median peer's."""
    skew = skew_of([one.clock_ahead_ms for one in seen.facts.reachability])
    if skew is None:
        return
    state: State = "warn" if skew.is_wrong else "ok"
    if abs(skew.ahead_ms) > seen.facts.clock_limit_ms:
        state = "bad"
    remedy = f"{skew.advice()}: peers refuse batches whose time is far off"
    yield found("clock", skew.message(), state, "" if state == "ok" else remedy)


def mesh(seen: Seen) -> Iterator[Finding]:
    """Report, for each topic, the peers in the mesh and the subscribed ones."""
    for topic, num in seen.facts.subscribers.items():
        members = seen.status.mesh.get(topic, 0)
        state: State = "warn" if seen.settled and seen.status.peers else "ok"
        if not num:
            remedy = "no other peer is subscribed: batches wait in the outbox"
        elif not members:
            state = "bad" if seen.settled else "ok"
            remedy = "wait a few seconds; if it stays, see the scores in `shoal debug peers`"
        elif members < min(num, seen.facts.mesh_low):
            remedy = "wait a few seconds; peers may have full meshes"
        else:
            state, remedy = "ok", ""
        yield found(
            "mesh",
            f"{short_topic(topic)}: {members} in the mesh of {num} subscribed",
            state,
            remedy,
        )
