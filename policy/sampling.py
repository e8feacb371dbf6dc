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

from policy.advantage import has_signal
from shoal_wire.types import PeerId

LOOK: Final = 4
"""Usable groups gathered for each one wanted, where a strategy chooses among them."""

_MEMORY = 0.9
"""How much of a family's own reward is kept as a new group of it comes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What a strategy sees of a leased group."""

    family: str
    publisher: PeerId
    created_ms: int
    """The publisher's clock: a claim."""
    rewards: tuple[float, ...]
    """By the own verifier."""


@dataclass(slots=True)
class OwnRecord:
    """How the node itself fares, by family. Not kept over a restart: it fills within rounds."""

    rewards: dict[str, float] = field(default_factory=dict)

    def add(self, family: str, rewards: Sequence[float]) -> None:
        """Count one own group."""
        if not rewards:
            return
        mean = sum(rewards) / len(rewards)
        before = self.rewards.get(family, mean)
        self.rewards[family] = _MEMORY * before + (1 - _MEMORY) * mean


@dataclass(slots=True)
class _Chosen:
    """What has been chosen so far, for orders that look at it."""

    families: Counter[str] = field(default_factory=Counter)
    publishers: Counter[PeerId] = field(default_factory=Counter)


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

    def usable(self, rewards: Sequence[float]) -> bool:
        """Whether a group may be trained on at all."""
        return has_signal(rewards) if self.filtered else bool(rewards)

    def enough(self, wanted: int) -> int:
        """Usable groups after which drawing ends."""
        return wanted * (LOOK if self.orders else 1)

    def choose(
        self, candidates: Sequence[Candidate], wanted: int, own: OwnRecord | None = None
    ) -> list[int]:
        """Return the indices of at most `wanted` candidates, one after another by the orders."""
        if not self.orders:
            return list(range(min(wanted, len(candidates))))
        left = list(range(len(candidates)))
        rewards = {} if own is None else own.rewards
        chosen = _Chosen()
        taken: list[int] = []
        while left and len(taken) < wanted:
            best = min(
                left, key=lambda i: [order(candidates[i], chosen, rewards) for order in self.orders]
            )
            left.remove(best)
            taken.append(best)
            chosen.families[candidates[best].family] += 1
            chosen.publishers[candidates[best].publisher] += 1
        return taken

    def kept(self, advantages: Sequence[float]) -> list[int]:
        """Return the indices of a group's completions that are trained on."""
        return [i for i, value in enumerate(advantages) if value > 0 or not self.positive]


def parse_strategy(text: str) -> Strategy:
    """Return the strategy of a name such as ``positive+balance``.

    Raises:
        StrategyError: an unknown word, a word twice, or two bases.
    """
    words = text.split("+")
    unknown = [word for word in words if word not in (*BASES, *ORDERS, POSITIVE)]
    if unknown:
        known = ", ".join((*BASES, POSITIVE, *ORDERS))
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
    )
