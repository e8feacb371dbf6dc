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
from policy.choice.words import WORDS, AdvantageTest, Order, Refusal, TextTest, Usable, Word
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
    text_tests: tuple[TextTest, ...] = ()

    @property
    def _chooses(self) -> bool:
        return bool(self.orders or self.refusals)

    def teaches(self, rewards: Sequence[float], texts: Sequence[str], *, tagged: bool) -> bool:
        """Whether a group may be trained on, and anything right of it would be."""
        if not self.usable(rewards) or not has_signal(rewards):
            return self.usable(rewards)
        best = max(rewards)
        right = [text for text, reward in zip(texts, rewards, strict=True) if reward == best]
        return any(self._reads(text, tagged) for text in right)

    def worth(
        self, rewards: Sequence[float], texts: Sequence[str], *, tagged: bool
    ) -> tuple[float, ...]:
        """Return what a group's rewards count for its publisher's standing.

        A right answer that this strategy leaves out is of no use here, however right it is.
        """
        both = zip(rewards, texts, strict=True)
        return tuple(reward if self._reads(text, tagged) else 0.0 for reward, text in both)

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
        chosen = Chosen()
        taken: list[int] = []
        while left and len(taken) < wanted:
            best = min(left, key=lambda i: self._rank(candidates[i], chosen, own))
            left.remove(best)
            if not self._refuses(candidates[best], chosen, own):
                taken.append(best)
                chosen.add(candidates[best])
        return taken

    def is_spent(self, one: Candidate, own: OwnRecord) -> bool:
        """Whether a group would be refused if nothing else were chosen: in any round to come."""
        return self._refuses(one, Chosen(), own)

    def trained_on(
        self,
        advantages: Sequence[float],
        texts: Sequence[str] | None = None,
        *,
        tagged: bool = False,
    ) -> list[int]:
        """Return the indices of a group's completions that are trained on.

        `texts` are the completions', where the strategy is to look at them (`bare`).
        """
        fit = [i for i, value in enumerate(advantages) if self._trains_on(value)]
        if texts is None:
            return fit
        return [i for i in fit if advantages[i] <= 0 or self._reads(texts[i], tagged)]

    def _rank(self, one: Candidate, chosen: Chosen, own: OwnRecord) -> list[float]:
        return [order(one, chosen, own) for order in self.orders]

    def _refuses(self, one: Candidate, chosen: Chosen, own: OwnRecord) -> bool:
        return any(refuses(one, chosen, own) for refuses in self.refusals)

    def _trains_on(self, advantage: float) -> bool:
        return all(trains_on(advantage) for trains_on in self.advantage_tests)

    def _reads(self, text: str, tagged: bool) -> bool:
        return all(reads(text, tagged) for reads in self.text_tests)


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
        text_tests=tuple(word.reads for word in words if word.reads),
    )
