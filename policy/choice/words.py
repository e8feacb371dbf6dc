"""The words that a strategy is made of: each is one row of `WORDS`, with what it does. Pure.

A new word is a row here, its name in `shoal_settings.strategy` and a line in docs/strategies.md;
tests compare the three. A row has a function for each place at which it has a say:

    drawn ─▶ usable (bases) ─▶ refuses ─▶ order ─▶ chosen ─▶ trains_on: which completions
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policy.choice.advantage import has_signal
from policy.choice.candidates import Candidate, Chosen, OwnRecord, TaskKey

Usable = Callable[[Sequence[float]], bool]
"""Whether a group with these rewards may be trained on at all."""
Order = Callable[[Candidate, Chosen, OwnRecord], float]
"""The lower, the sooner a candidate is chosen."""
Refusal = Callable[[Candidate, Chosen, OwnRecord], bool]
"""Whether a candidate is left out, however few there are."""
AdvantageTest = Callable[[float], bool]
"""Whether a completion with this advantage is trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word. Where it has no function it has no say."""

    name: str
    does: str
    """In one line, as docs/strategies.md lists it."""
    usable: Usable | None = None
    """Of bases, and of them alone."""
    order: Order | None = None
    refuses: Refusal | None = None
    trains_on: AdvantageTest | None = None


def _reward(one: Candidate, _chosen: Chosen, _own: OwnRecord) -> float:
    return -sum(one.rewards) / len(one.rewards)


def _family(one: Candidate, chosen: Chosen, _own: OwnRecord) -> float:
    return chosen.families[one.family]


def _publisher(one: Candidate, chosen: Chosen, _own: OwnRecord) -> float:
    return chosen.publishers[one.publisher]


def _newest(one: Candidate, _chosen: Chosen, _own: OwnRecord) -> float:
    return -one.created_ms


def _weakest(one: Candidate, _chosen: Chosen, own: OwnRecord) -> float:
    # A family that was never asked here is the weakest of all.
    return round(own.rewards.get(one.family, 0.0), 1)


def _is_copy(one: Candidate, chosen: Chosen, own: OwnRecord) -> bool:
    return _copies(one, chosen.texts) or _copies(one, own.trained)


def _copies(one: Candidate, texts: Mapping[TaskKey, frozenset[Hashable]]) -> bool:
    known = texts.get(one.task, frozenset())
    # Two nodes hardly ever draw one task. A copy need not be whole: half its texts make it one.
    return bool(known) and 2 * len(one.texts & known) >= len(one.texts)


def _is_second_of_publisher(one: Candidate, chosen: Chosen, _own: OwnRecord) -> bool:
    return chosen.publishers[one.publisher] > 0


def _is_positive(advantage: float) -> bool:
    return advantage > 0


WORDS: Final = (
    Word(
        name="uniform",
        does="the paper's experiment: pass over groups without signal, then as drawn",
        usable=has_signal,
    ),
    Word(
        name="uniform-unfiltered",
        does="the paper's open demo: as drawn, signal or not",
        usable=bool,
    ),
    Word(
        name="top-reward",
        does="highest mean reward first, signal or not",
        usable=bool,
        order=_reward,
    ),
    Word(
        name="positive",
        does="of others' groups, only completions with positive advantage are trained on",
        trains_on=_is_positive,
    ),
    Word(name="balance", does="task families in turn", order=_family),
    Word(name="diverse", does="publishers in turn", order=_publisher),
    Word(name="fresh", does="newest first, by the publisher's clock", order=_newest),
    Word(
        name="weak",
        does="families first in which the node's own answers earn least",
        order=_weakest,
    ),
    # Against peers who do not mean well; docs/presets.md says what each costs.
    Word(
        name="distinct",
        does="copies are left out: a group of which half the texts were trained on for that task",
        refuses=_is_copy,
    ),
    Word(
        name="capped",
        does="one group of a publisher a round",
        refuses=_is_second_of_publisher,
    ),
)
"""Every word, bases first. Bases are section 6 of the paper: its controlled experiment, its open
demo, and what its released code does."""
