"""Which groups of others a round trains on (SAPO, Algorithm 1, SampleExternal): pure.

    drawn from the node ─▶ verified ─▶ usable? ─▶ candidates ─▶ choose J ─▶ which completions?
                                     (filter)                  (orders)     (positive)

A strategy is words joined by ``+``: at most one base, any number of refinements, the most
important first; docs/experiments.md compares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from policy.choice.advantage import has_signal
from shoal_base.bounded import BoundedDict
from shoal_wire.types import PeerId, PublishedGroup

LOOK: Final = 4
"""Usable groups gathered for each one wanted, where a strategy chooses among them."""

_MEMORY = 0.9
"""How much of a family's own reward is kept as a new group of it comes in."""

_REMEMBERED = 4096
"""Tasks of others trained on that are remembered, to know a copy by."""


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
    task: TaskKey = ("", 0, 0)
    texts: frozenset[str] = frozenset()
    """Its completions."""


@dataclass(slots=True)
class OwnRecord:
    """How the node itself fares, by family. Not kept over a restart: it fills within rounds."""

    rewards: dict[str, float] = field(default_factory=dict)
    trained: BoundedDict[TaskKey, frozenset[str]] = field(
        default_factory=lambda: BoundedDict(_REMEMBERED)
    )
    """Texts of others trained on, by task; the oldest is forgotten first."""

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


@dataclass(slots=True)
class _Chosen:
    """What has been chosen so far, for orders that look at it."""

    families: Counter[str] = field(default_factory=Counter)
    publishers: Counter[PeerId] = field(default_factory=Counter)
    texts: dict[TaskKey, frozenset[str]] = field(default_factory=dict)


Order = Callable[[Candidate, _Chosen, Mapping[str, float]], float]
"""The lower, the sooner a candidate is chosen."""


def _reward(one: Candidate, _chosen: _Chosen, _own: Mapping[str, float]) -> float:
    return -sum(one.rewards) / len(one.rewards)


def _family(one: Candidate, chosen: _Chosen, _own: Mapping[str, float]) -> float:
    return chosen.families[one.family]


def _publisher(one: Candidate, chosen: _Chosen, _own: Mapping[str, float]) -> float:
    return chosen.publishers[one.publisher]


def _newest(one: Candidate, _chosen: _Chosen, _own: Mapping[str, float]) -> float:
    return -one.created_ms


def _weakest(one: Candidate, _chosen: _Chosen, own: Mapping[str, float]) -> float:
    # A family that was never asked here is the weakest of all.
    return round(own.get(one.family, 0.0), 1)


BASES: Final[Mapping[str, tuple[bool, tuple[Order, ...]]]] = {
    "uniform": (True, ()),
    "uniform-unfiltered": (False, ()),
    "top-reward": (False, (_reward,)),
}
"""Name → whether groups without signal are passed over, and what comes first.

uniform: the paper's controlled experiment; uniform-unfiltered: its open demo (section 6);
top-reward: the highest mean reward first, as its released code has it.
"""

ORDERS: Final[Mapping[str, Order]] = {
    "balance": _family,
    "diverse": _publisher,
    "fresh": _newest,
    "weak": _weakest,
}
"""Refinements: families in turn; publishers in turn; newest first; own weak families first."""

POSITIVE: Final = "positive"
"""The refinement that leaves external completions without positive advantage out."""


DISTINCT: Final = "distinct"
"""The refinement that counts a text once: groups that copy one trained on are left out."""
CAPPED: Final = "capped"
"""The refinement that takes at most one group of a publisher in a round."""
BARE: Final = "bare"
"""The refinement that leaves out right answers which carry something the verifier ignores."""
GUARDS: Final = (DISTINCT, CAPPED, BARE)
"""Refinements against peers who do not mean well; docs/experiments.md says what each costs."""


class StrategyError(ValueError):
    """A name that is no strategy; one line that says what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How external groups are chosen, and what of them is trained on."""

    name: str = "uniform"
    filtered: bool = True
    """Groups whose rewards are all equal are passed over."""
    positive: bool = False
    """Only completions with positive advantage are trained on: what others got right."""
    orders: tuple[Order, ...] = ()
    """Most important first; the order of the draw, which is random, breaks ties."""
    distinct: bool = False
    capped: bool = False
    bare: bool = False

    @property
    def _chooses(self) -> bool:
        return bool(self.orders) or self.distinct or self.capped

    def usable(self, rewards: Sequence[float]) -> bool:
        """Whether a group may be trained on at all."""
        return has_signal(rewards) if self.filtered else bool(rewards)

    def teaches(self, rewards: Sequence[float], texts: Sequence[str], *, tagged: bool) -> bool:
        """Whether a group may be trained on, and anything right of it would be."""
        if not self.bare or not self.usable(rewards) or not has_signal(rewards):
            return self.usable(rewards)
        best = max(rewards)
        right = [text for text, reward in zip(texts, rewards, strict=True) if reward == best]
        return any(is_bare(text, tagged=tagged) for text in right)

    def worth(
        self, rewards: Sequence[float], texts: Sequence[str], *, tagged: bool
    ) -> tuple[float, ...]:
        """Return what a group's rewards count for its publisher's standing.

        A right answer that this strategy leaves out is of no use here, however right it is.
        """
        if not self.bare:
            return tuple(rewards)
        both = zip(rewards, texts, strict=True)
        return tuple(reward if is_bare(text, tagged=tagged) else 0.0 for reward, text in both)

    def enough(self, wanted: int) -> int:
        """Usable groups after which drawing ends."""
        return wanted * (LOOK if self._chooses else 1)

    def choose(
        self, candidates: Sequence[Candidate], wanted: int, own: OwnRecord | None = None
    ) -> list[int]:
        """Return the indices of at most `wanted` candidates, one after another by the orders."""
        if not self._chooses:
            return list(range(min(wanted, len(candidates))))
        left = list(range(len(candidates)))
        own = own or OwnRecord()
        chosen = _Chosen()
        taken: list[int] = []
        while left and len(taken) < wanted:
            best = min(left, key=lambda i: self._rank(candidates[i], chosen, own.rewards))
            left.remove(best)
            one = candidates[best]
            if self._is_refused(one, chosen, own):
                continue
            taken.append(best)
            chosen.families[one.family] += 1
            chosen.publishers[one.publisher] += 1
            chosen.texts[one.task] = chosen.texts.get(one.task, frozenset()) | one.texts
        return taken

    def _rank(self, one: Candidate, chosen: _Chosen, rewards: Mapping[str, float]) -> list[float]:
        return [order(one, chosen, rewards) for order in self.orders]

    def _is_refused(self, one: Candidate, chosen: _Chosen, own: OwnRecord) -> bool:
        if self.capped and chosen.publishers[one.publisher]:
            return True
        return self._copies(one, chosen.texts) or self.is_copy(one, own)

    def is_copy(self, one: Candidate, own: OwnRecord) -> bool:
        """Whether a group is one trained on before, whoever signed it, and copies are left out."""
        return self._copies(one, own.trained)

    def _copies(self, one: Candidate, texts: Mapping[TaskKey, frozenset[str]]) -> bool:
        known = texts.get(one.task, frozenset())
        # Two nodes hardly ever draw one task. A copy need not be whole: half its texts make it one.
        return self.distinct and bool(known) and 2 * len(one.texts & known) >= len(one.texts)

    def kept(
        self,
        advantages: Sequence[float],
        texts: Sequence[str] | None = None,
        *,
        tagged: bool = False,
    ) -> list[int]:
        """Return the indices of a group's completions that are trained on.

        `texts` are the completions', where the strategy is to look at them (`bare`).
        """
        kept = [i for i, value in enumerate(advantages) if value > 0 or not self.positive]
        if not self.bare or texts is None:
            return kept
        return [i for i in kept if advantages[i] <= 0 or is_bare(texts[i], tagged=tagged)]


def candidate_of(published: PublishedGroup, rewards: tuple[float, ...]) -> Candidate:
    """Return what a strategy sees of a group with these rewards."""
    task = published.group.task
    return Candidate(
        family=task.family,
        publisher=published.publisher,
        created_ms=published.created_ms,
        rewards=rewards,
        task=(task.family, task.seed, task.index),
        texts=frozenset(completion.text for completion in published.group.completions),
    )


def is_bare(text: str, *, tagged: bool) -> bool:
    """Whether a right answer holds nothing that its verifier passes over unread.

    Around a plain answer that is white space; of tagged ones, what follows the closing tag (what
    comes before is the reasoning, which nobody can tell from a planted phrase).
    """
    return text.endswith("</answer>") if tagged else text == text.strip()


def parse_strategy(text: str) -> Strategy:
    """Return the strategy of a name such as ``positive+balance``.

    Raises:
        StrategyError: an unknown word, a word twice, or two bases.
    """
    words = text.split("+")
    unknown = [word for word in words if word not in (*BASES, *ORDERS, POSITIVE, *GUARDS)]
    if unknown:
        known = ", ".join((*BASES, POSITIVE, *ORDERS, *GUARDS))
        raise StrategyError(f"{unknown[0]!r} is no strategy; join some of {known} with +")
    bases = [word for word in words if word in BASES]
    if len(set(words)) != len(words) or len(bases) > 1:
        raise StrategyError(f"strategy {text!r} names a thing twice, or two bases")
    filtered, first = BASES[bases[0] if bases else "uniform"]
    return Strategy(
        name=text,
        filtered=filtered,
        positive=POSITIVE in words,
        orders=(*first, *(ORDERS[word] for word in words if word in ORDERS)),
        distinct=DISTINCT in words,
        capped=CAPPED in words,
        bare=BARE in words,
    )
