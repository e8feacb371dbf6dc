"""Hostile schedules as data from a seed, and their reduction to a minimal failing one.

Each step has its own seed, so removing steps does not change the others.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from tests.redteam import (
    answer_acts,
    control_acts,
    gossip_acts,
    line_acts,
    request_acts,
    restart_acts,
)
from tests.redteam.peer import AttackerPeer

S = TypeVar("S")
Act = Callable[[AttackerPeer, random.Random], Awaitable[None]]

MODULES: tuple[ModuleType, ...] = (
    gossip_acts,
    control_acts,
    request_acts,
    answer_acts,
    line_acts,
    restart_acts,
)
NUM_MEMBERS = 4
ATTACK_S = 20.0


def public_coroutines(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield a module's acts by name: its public coroutines with a peer and a random generator."""
    for name, value in vars(module).items():
        of_here = getattr(value, "__module__", "") == module.__name__
        if of_here and not name.startswith("_") and value.__code__.co_flags & 0x80:
            yield name, value


ACTS: Mapping[str, Act] = {
    name: act for module in MODULES for name, act in public_coroutines(module)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One act of one attacker."""

    at: float
    """Seconds after the attack begins."""
    who: int
    act: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The attack of one run."""

    seed: int
    honest: int
    one_network: bool
    """True if the attackers share a network."""
    steps: tuple[Step, ...]
    weather: tuple[float, ...] = ()
    """Times at which an honest node is killed and restarted, or honest connections break."""
    skew_s: float = 0.0
    """Maximum clock error of honest nodes, in ms."""


def schedule_of(seed: int) -> Schedule:
    """Draw a schedule: few acts often, all acts, or one repeatedly."""
    rng = random.Random(f"red team {seed}")
    names = sorted(ACTS)
    kinds = rng.sample(names, rng.choice((1, 2, 4, 8, len(names))))
    count = rng.choice((15, 40, 80))
    steps = [
        Step(
            at=ATTACK_S * rng.random() ** rng.choice((1, 1, 3)),
            who=rng.randrange(NUM_MEMBERS),
            act=rng.choice(kinds),
            seed=rng.getrandbits(32),
        )
        for _ in range(count)
    ]
    return Schedule(
        seed=seed,
        honest=rng.randint(3, 4),
        one_network=rng.random() < 0.3,
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        weather=tuple(sorted(ATTACK_S * rng.random() for _ in range(rng.choice((0, 0, 1, 4))))),
        skew_s=rng.choice((0.0, 0.0, 20.0)),
    )


def minimal_steps(steps: Sequence[S], fails: Callable[[Sequence[S]], bool]) -> list[S]:
    """Return a minimal list of steps that still fails (delta debugging)."""
    left, parts = list(steps), 2
    while len(left) >= 2:
        size = -(-len(left) // parts)
        cuts = [left[:at] + left[at + size :] for at in range(0, len(left), size)]
        found = next((cut for cut in cuts if fails(cut)), None)
        if found is not None:
            left, parts = found, max(2, parts - 1)
        elif parts >= len(left):
            break
        else:
            parts = min(len(left), 2 * parts)
    return left
