"""What a strategy looks at: a group of others, what is chosen beside it, and the node's own past.

Pure values; `policy.choice.words` has the functions that read them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from shoal_base.bounded import BoundedDict
from shoal_ipc.messages import SampledGroup
from shoal_wire.types import PeerId

_MEMORY = 0.9
"""How much of a family's own reward stays as a new group of it is counted."""

_REMEMBERED = 4096
"""Tasks of others trained on that are remembered, to know a copy by."""
MAX_REMEMBERED_TEXTS = 65_536
"""Of all of them together: some six megabytes of digests."""
_DIGEST_BYTES = 8


TaskKey = tuple[str, int, int]
"""A task's family, seed and index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What a strategy sees of a leased group."""

    family: str
    publisher: PeerId
    created_ms: int
    """The publisher's clock: a claim."""
    rewards: tuple[float, ...]
    """By the own verifier."""
    signal: float = 0.0
    """Sum of |advantage| over what would be trained on of it."""
    network: str = ""
    connection: str = ""
    """By which it came to this node, as the node calls them; all that it does not know are one."""
    task: TaskKey = ("", 0, 0)
    texts: frozenset[Hashable] = frozenset()
    """A digest of each of its completions: a text may be long, and is kept for hours."""


def candidate_of(
    sampled: SampledGroup, rewards: tuple[float, ...], signal: float = 0.0
) -> Candidate:
    """Return what a strategy sees of a group with these rewards."""
    published = sampled.published
    task = published.group.task
    return Candidate(
        family=task.family,
        publisher=published.publisher,
        created_ms=published.created_ms,
        rewards=rewards,
        signal=signal,
        network=sampled.network,
        connection=sampled.connection,
        task=(task.family, task.seed, task.index),
        texts=frozenset(_digest(completion.text) for completion in published.group.completions),
    )


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


@dataclass(slots=True)
class OwnRecord:
    """How the node itself fares, by family. A restart begins it anew: it fills within rounds."""

    rewards: dict[str, float] = field(default_factory=dict)
    trained: BoundedDict[TaskKey, frozenset[Hashable]] = field(
        default_factory=lambda: BoundedDict(_REMEMBERED)
    )
    """Digests of others' texts trained on, by task; the oldest is forgotten first."""

    def add(self, family: str, rewards: Sequence[float]) -> None:
        """Count one own group."""
        if not rewards:
            return
        mean = sum(rewards) / len(rewards)
        before = self.rewards.get(family, mean)
        self.rewards[family] = _MEMORY * before + (1 - _MEMORY) * mean

    def add_trained(self, one: Candidate) -> None:
        """Remember a group of others that is trained on."""
        self.trained[one.task] = self.trained.get(one.task, frozenset()) | one.texts
        held = sum(map(len, self.trained.values()))
        while held > MAX_REMEMBERED_TEXTS:
            oldest = next(iter(self.trained))
            held -= len(self.trained.pop(oldest))


@dataclass(slots=True)
class Chosen:
    """What has been chosen so far in a round."""

    families: Counter[str] = field(default_factory=Counter)
    publishers: Counter[PeerId] = field(default_factory=Counter)
    texts: dict[TaskKey, frozenset[Hashable]] = field(default_factory=dict)

    def add(self, one: Candidate) -> None:
        """Count one more."""
        self.families[one.family] += 1
        self.publishers[one.publisher] += 1
        self.texts[one.task] = self.texts.get(one.task, frozenset()) | one.texts
