"""Which groups of others a round trains on (SAPO, Algorithm 1, SampleExternal): pure.

    drawn from the node ─▶ verified ─▶ usable? ─▶ candidates ─▶ choose J ─▶ which completions?

A strategy is words joined by ``+``: at most one base, any number of refinements, the most
important first; `policy.choice.words` has them all, docs/strategies.md compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from policy.choice.advantage import has_signal
from policy.choice.candidates import Candidate, Chosen, OwnRecord
from policy.choice.sources import Sources
from policy.choice.words import WORDS, AdvantageTest, Order, Refusal, Usable, Word
from shoal_settings.strategy import BASES, strategy_words

LOOK: Final = 4
"""Usable groups gathered for each one wanted, where a strategy chooses among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalStrategy:
    """How others' groups are chosen, and what of them is trained on."""

    usable: Usable = has_signal
    """Whether a group with these rewards may be trained on at all."""
    orders: tuple[Order, ...] = ()
    """Most important first; the order of the draw, which is random, breaks ties."""
    refusals: tuple[Refusal, ...] = ()
    advantage_tests: tuple[AdvantageTest, ...] = ()
    has_ceilings: bool = False
    """Whether sources have ceilings (`policy.choice.sources`). The papers' bases have none."""

    @property
    def _chooses(self) -> bool:
        return bool(self.orders or self.refusals or self.has_ceilings)

    def enough(self, wanted: int) -> int:
        """Usable groups after which drawing ends."""
        return wanted * (LOOK if self._chooses else 1)

    def choose(
        self,
        candidates: Sequence[Candidate],
        wanted: int,
        own: OwnRecord | None = None,
        sources: Sources | None = None,
    ) -> list[int]:
        """Return the indices of at most `wanted` candidates, one after another by the orders.

        `sources` is what each has given before this round; it does not change.
        """
        if not self._chooses:
            return list(range(min(wanted, len(candidates))))
        left = list(range(len(candidates)))
        own, sources = own or OwnRecord(), (sources or Sources()).copy()
        full_round = wanted * sum(one.signal for one in candidates) / max(1, len(candidates))
        chosen = Chosen()
        taken: list[int] = []
        while left and len(taken) < wanted:
            best = min(left, key=lambda i: self._rank(candidates[i], chosen, own, sources))
            left.remove(best)
            one = candidates[best]
            if self.has_ceilings and sources.is_over(one, full_round):
                continue
            if not self._refuses(one, chosen, own):
                taken.append(best)
                chosen.add(one)
                sources.add(one)
        return taken

    def counts(self, one: Candidate, sources: Sources) -> bool:
        """Return whether a usable group counts towards what a round looks for."""
        return not (self.has_ceilings and sources.is_ahead(one.network))

    def is_spent(self, one: Candidate, own: OwnRecord) -> bool:
        """Whether a group would be refused if nothing else were chosen: in any round to come."""
        return self._refuses(one, Chosen(), own)

    def trained_on(self, advantages: Sequence[float]) -> list[int]:
        """Return the indices of a group's completions that are trained on."""
        return [i for i, value in enumerate(advantages) if self._trains_on(value)]

    def _rank(
        self, one: Candidate, chosen: Chosen, own: OwnRecord, sources: Sources
    ) -> list[float]:
        ranks = [order(one, chosen, own) for order in self.orders]
        return ranks + sources.order(one) if self.has_ceilings else ranks

    def _refuses(self, one: Candidate, chosen: Chosen, own: OwnRecord) -> bool:
        return any(refuses(one, chosen, own) for refuses in self.refusals)

    def _trains_on(self, advantage: float) -> bool:
        return all(trains_on(advantage) for trains_on in self.advantage_tests)


def parse_strategy(text: str) -> ExternalStrategy:
    """Return the strategy of a name such as ``positive+balance``.

    Raises:
        StrategyError: an unknown word, a word twice, or two bases.
    """
    by_name = {word.name: word for word in WORDS}
    named = [by_name[name] for name in strategy_words(text)]
    refinements = [word for word in named if word.usable is None]
    base = next((word for word in named if word.usable is not None), by_name[BASES[0]])
    return _joined(base, refinements)


def _joined(base: Word, refinements: Sequence[Word]) -> ExternalStrategy:
    """The strategy of these words: what the base says comes first."""
    words = (base, *refinements)
    return ExternalStrategy(
        usable=base.usable or has_signal,
        orders=tuple(word.order for word in words if word.order),
        refusals=tuple(word.refuses for word in words if word.refuses),
        advantage_tests=tuple(word.trains_on for word in words if word.trains_on),
        has_ceilings=bool(refinements),
    )
