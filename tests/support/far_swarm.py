"""A trainer's choice among near and distant publishers, with the real buffer, weights and strategy.

Near publishers are connected to this node, each from its own network. Distant ones are not
connected: near ones forward their batches. One machine publishes correct groups under any number of
names, either connected to this node or through near publishers. Only rewards are simulated. A round
is a virtual second.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass

from shoal_p2p.buffer.pool import source_of
from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.buffer.types import BufferEntry, BufferLimits
from shoal_p2p.peers.met_networks import UNKNOWN_NETWORK
from shoal_p2p.reputation.publisher_weights import PublisherWeights
from shoal_policy.choice.advantage import group_advantages
from shoal_policy.choice.sources import Candidate, SourceQuota
from shoal_policy.choice.strategy import ExternalStrategy, parse_strategy
from shoal_wire.types import BatchId, GroupId, PeerId, PublishedGroup, RolloutGroup
from tests.support import factories as make

DEFAULT = parse_strategy("positive+balance")
LOCAL, EXTERNAL, OVERSAMPLE, ANSWERS, FAMILIES = 4, 8, 8, 8, 6
GROUPS_A_ROUND = 4
"""Groups that an honest publisher publishes per round."""
HOLDER = "trainer"
_LIMITS = BufferLimits(
    max_groups=4096,
    max_bytes=1 << 30,
    max_age_seconds=600.0,
    max_groups_per_publisher=512,
    max_bytes_per_publisher=1 << 28,
)
_RIGHT = (1, 1, 1, 2, 2, 3, 4)
"""Correct completions in an honest group with signal."""
_GROUPS = tuple(
    RolloutGroup(task=make.task(family=f"family{n}"), completions=()) for n in range(FAMILIES)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A swarm as one node sees it."""

    near: int = 8
    near_publish: bool = True
    """False if near publishers only forward, as bootstrap peers do."""
    far: int = 40
    is_connected: bool = True
    """True if this node was once connected to the distant publishers."""
    names: int = 200
    """Names of the machine; 0 without one."""
    behind: int = 8
    """Near publishers that forward its groups; 0 if it is connected to this node."""
    groups: int = 20
    """Groups that it publishes per round."""
    useful: float = 0.5
    """Fraction of an honest publisher's groups with signal. The machine's all have signal."""


def _signal(num_right: int) -> float:
    advantages = group_advantages([float(n < num_right) for n in range(ANSWERS)])
    return sum(advantages[index] for index in DEFAULT.select_completions(advantages))


_SIGNALS = [_signal(n) for n in range(ANSWERS + 1)]


class FarSwarm:
    """One node's trainer in a scene."""

    def __init__(self, scene: Scene, seed: int, strategy: ExternalStrategy = DEFAULT) -> None:
        self._scene, self._rng, self._strategy = scene, random.Random(seed), strategy
        self._buffer = ReplayBuffer(_LIMITS, random.Random(seed + 1))
        self._weights = PublisherWeights()
        self._sources = SourceQuota()
        self._right: dict[GroupId, int] = {}
        self._numbers = itertools.count()
        self.draws, self.signal = Counter[str](), dict.fromkeys(("near", "far", "machine"), 0.0)
        """Signal by kind of publisher."""

    @property
    def total(self) -> float:
        """The total signal."""
        return sum(self.signal.values())

    def share(self, kind: str) -> float:
        """Return a kind's fraction of the signal, 0 to 1."""
        return self.signal[kind] / self.total

    def play(self, rounds: int) -> FarSwarm:
        """Publish and train for this many rounds."""
        for now in range(rounds):
            self._publish(float(now))
            self._round(float(now))
        return self

    def _publish(self, now: float) -> None:
        """Publish one round of every publisher, in random order."""
        scene, rng = self._scene, self._rng
        num_near = scene.near if scene.near_publish else 0
        honest = [("near", n, n) for n in range(num_near) for _ in range(GROUPS_A_ROUND)]
        honest += [
            ("far", n, rng.randrange(scene.near))
            for n in range(scene.far)
            for _ in range(GROUPS_A_ROUND)
        ]
        replies = [
            (
                PeerId(f"{kind}{n}"),
                f"near{by}",
                rng.choice(_RIGHT) if rng.random() < scene.useful else 0,
            )
            for kind, n, by in honest
        ]
        for _ in range(scene.groups if scene.names else 0):
            name = PeerId(f"machine{rng.randrange(scene.names)}")
            replies.append(
                (name, f"near{rng.randrange(scene.behind)}" if scene.behind else name, 4)
            )
        rng.shuffle(replies)
        for name, by, right in replies:
            self._insert(name, by, right, now)

    def _insert(self, name: PeerId, by: str, right: int, now: float) -> None:
        key = GroupId(next(self._numbers).to_bytes(16, "big"))
        self._right[key] = right
        entry = BufferEntry(
            group=_published(key, name, self._rng.randrange(FAMILIES)),
            num_bytes=1000,
            received_at=now,
            network=self._network_of(name),
            connection=by,
            by_publisher=by == name,
        )
        self._buffer.insert(entry, now)

    def _network_of(self, name: PeerId) -> str:
        kind = kind_of(name)
        if kind == "machine":
            return UNKNOWN_NETWORK if self._scene.behind else kind
        return UNKNOWN_NETWORK if kind == "far" and not self._scene.is_connected else name

    def _round(self, now: float) -> None:
        self._report_own(now)
        self._sources = self._sources.next_round()
        usable, spent = self._draw(now)
        candidates = [one for _, one in usable]
        chosen = self._strategy.choose(candidates, EXTERNAL, sources=self._sources)
        for index in chosen:
            entry, one = usable[index]
            self._sources.add(one)
            self.signal[kind_of(entry.group.publisher)] += one.signal
            spent.append(entry.group.group_id)
        self._buffer.consume(spent)
        self._buffer.release_holder(HOLDER)

    def _draw(self, now: float) -> tuple[list[tuple[BufferEntry, Candidate]], list[GroupId]]:
        """Lease as a round does; return the usable groups and those without signal."""
        usable: list[tuple[BufferEntry, Candidate]] = []
        spent: list[GroupId] = []
        counted, budget = 0, OVERSAMPLE * (LOCAL + EXTERNAL)
        while counted < self._strategy.num_candidates(EXTERNAL) and budget > 0:
            entries = self._buffer.lease(
                min(2 * EXTERNAL, budget),
                holder=HOLDER,
                now=now,
                lease_seconds=1e6,
                weight_of=lambda name, source: self._weights.weight(name, now, source),
                has_signal=lambda name: self._weights.has_signal(name, now),
            )
            if not entries:
                break
            budget -= len(entries)
            for entry in entries:
                right = self._right[entry.group.group_id]
                self._report(entry, right, now)
                if right:
                    one = candidate_of(entry, _SIGNALS[right])
                    usable.append((entry, one))
                    counted += self._strategy.counts_towards_target(one, self._sources)
                else:
                    spent.append(entry.group.group_id)
        return usable, spent

    def _report_own(self, now: float) -> None:
        for n in range(LOCAL):
            self._weights.report(
                GroupId(f"{now} {n}".encode()),
                publisher=PeerId("me"),
                family="any",
                rewards=(0.0, float(self._rng.random() < self._scene.useful)),
                own=True,
                now=now,
            )

    def _report(self, entry: BufferEntry, right: int, now: float) -> None:
        self.draws[kind_of(entry.group.publisher)] += 1
        self._weights.report(
            entry.group.group_id,
            publisher=entry.group.publisher,
            family="any",
            rewards=(0.0, float(right > 0)),
            own=False,
            now=now,
            source=source_of(entry),
        )


def kind_of(publisher: PeerId) -> str:
    """Return near, far or machine."""
    return publisher.rstrip("0123456789")


def candidate_of(entry: BufferEntry, signal: float) -> Candidate:
    """Return the fields of a group that the choice uses."""
    return Candidate(family=entry.group.group.task.family, signal=signal, network=entry.network)


def _published(key: GroupId, publisher: PeerId, family: int) -> PublishedGroup:
    return PublishedGroup(
        group_id=key,
        publisher=publisher,
        batch_id=BatchId(bytes(32)),
        round=0,
        created_ms=0,
        policy=make.POLICY,
        sampling=make.SAMPLING,
        group=_GROUPS[family],
    )
