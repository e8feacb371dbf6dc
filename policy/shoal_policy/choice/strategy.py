"""Chooses which groups of others a round trains on (SAPO, Algorithm 1, SampleExternal). Pure.

    drawn from the node ─▶ verified ─▶ has signal? ─▶ choose J: order, ceilings ─▶ of each, what?

A strategy is words joined by ``+``, the most important first. Each word is one row of `WORDS`. A
new word is a row here, its name in `shoal_settings.strategy` and a line in docs/losses.md,
which compares them; tests hold the three together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_policy.choice.sources import Candidate, Sources
from shoal_settings.strategy import strategy_words

LOOK: Final = 4
"""Usable groups gathered for each one wanted, where a strategy chooses among them."""

Order = Callable[[Candidate, Sequence[Candidate]], float]
"""A candidate's rank beside those chosen before it: the lower, the sooner it is chosen."""
AdvantageTest = Callable[[float], bool]
"""Returns whether a completion with this advantage is trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a strategy. Where a function is absent the word has no say."""

    name: str
    does: str
    """One line, as docs/losses.md lists it."""
    order: Order | None = None
    trains_on: AdvantageTest | None = None


def _family(one: Candidate, chosen: Sequence[Candidate]) -> float:
    return sum(other.family == one.family for other in chosen)


def _is_positive(advantage: float) -> bool:
    return advantage > 0


WORDS: Final = (
    Word(
        name="uniform",
        does="the paper's experiment: pass over groups without signal, then as drawn",
    ),
    Word(
        name="positive",
        does="of others' groups, only completions with positive advantage are trained on",
        trains_on=_is_positive,
    ),
    Word(name="balance", does="task families in turn", order=_family),
)
"""Every word. The first is the paper's controlled experiment (SAPO, section 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalStrategy:
    """The choice of external groups, and of those of their completions to train on."""

    orders: tuple[Order, ...] = ()
    """Most important first; the order of the draw, which is random, breaks ties."""
    advantage_tests: tuple[AdvantageTest, ...] = ()
    has_ceilings: bool = False
    """True if sources have ceilings (`shoal_policy.choice.sources`). The paper's way has none."""

    def enough(self, wanted: int) -> int:
        """Return how many usable groups end the drawing."""
        return wanted * (LOOK if self.orders or self.has_ceilings else 1)

    def choose(
        self, candidates: Sequence[Candidate], wanted: int, sources: Sources | None = None
    ) -> list[int]:
        """Return the indices of at most `wanted` candidates, one after another by the orders.

        `sources` is what each has given before this round; it does not change.
        """
        left = list(range(len(candidates)))
        sources = (sources or Sources()).copy()
        full_round = wanted * sum(one.signal for one in candidates) / max(1, len(candidates))
        chosen: list[Candidate] = []
        taken: list[int] = []
        while left and len(taken) < wanted:
            best = min(left, key=lambda i: self._rank(candidates[i], chosen, sources))
            left.remove(best)
            one = candidates[best]
            if self.has_ceilings and sources.is_over(one, full_round):
                continue
            taken.append(best)
            chosen.append(one)
            sources.add(one)
        return taken

    def counts(self, one: Candidate, sources: Sources) -> bool:
        """Return whether a usable group counts towards what a round looks for."""
        return not (self.has_ceilings and sources.is_ahead(one.network))

    def trained_on(self, advantages: Sequence[float]) -> list[int]:
        """Return the indices of a group's completions that are trained on."""
        tests = self.advantage_tests
        return [i for i, value in enumerate(advantages) if all(test(value) for test in tests)]

    def _rank(self, one: Candidate, chosen: Sequence[Candidate], sources: Sources) -> list[float]:
        ranks = [order(one, chosen) for order in self.orders]
        return [*ranks, sources.order(one)] if self.has_ceilings else ranks


def parse_strategy(text: str) -> ExternalStrategy:
    """Return the strategy of a name such as ``positive+balance``.

    Raises:
        StrategyError: an unknown word, or a word twice.
    """
    by_name = {word.name: word for word in WORDS}
    words = [by_name[name] for name in strategy_words(text)]
    return ExternalStrategy(
        orders=tuple(word.order for word in words if word.order),
        advantage_tests=tuple(word.trains_on for word in words if word.trains_on),
        has_ceilings=words != [WORDS[0]],
    )
