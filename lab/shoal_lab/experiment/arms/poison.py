"""Arms of `shoal experiment poison` and `planted`: the cost of attackers to honest nodes.

Arms are a swarm of honest nodes, with or without attackers:

    KIND SHARE: none       the paper's rules: publishers weighted equally, all completions
    KIND SHARE: default    the rules of `make node`
    clean: NAME            no attackers

`planted` asks how far a word spreads where answers stand between tags. A verifier of tagged answers
reads nothing outside the tags. The reasoning stands before them, and no rule can tell it from a
word that an attacker plants:

    preface     before the tags, in the place of the reasoning
    behind      after the closing tag
    decoy       before the tags another pair of them: a preface that a model finds likely
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shoal_lab.experiment.arms.results import PUBLISHED
from shoal_lab.experiment.plan import CLEAN, Arm, NodeSpec
from shoal_lab.experiment.run.attackers import NAMES
from shoal_lab.experiment.setup.tagged import MODEL, TASK_FILES
from shoal_settings.schema import Settings

NONE: Final = "none"
DEFAULT: Final = "default"
SHARES: Final = (0.10, 0.25, 0.50)
QUICK_SHARES: Final = (0.25,)
NAMES_SHARE: Final = 2 / 3
"""Share of members that one operator runs under many names, in place of a share of attackers."""
KINDS: Final = ("pad", "mark", "cut", "garbage", "wrong", "easy", "long", "phrase", "copied", NAMES)
"""Attacks on plain answers."""
TAGGED_KINDS: Final = ("preface", "behind", "decoy")
"""Attacks that need tags."""
BASE: Final[Mapping[str, Any]] = {
    "model": "tiny",
    "device": "cpu",
    "eval_every": 3,
    "eval_per_family": 34,
}
"""Plain answers are attacked under the settings of `make node`: its model, tasks and rate."""
TAGGED_BASE: Final[Mapping[str, Any]] = {
    "model": str(MODEL),
    "tasks": list(TASK_FILES),
    "max_new_tokens": 16,
}
"""Settings that differ from those of `poison`: the tags and the word need tokens."""
RATIO: Final[Mapping[str, Any]] = {"local": 4, "external": 4}
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    NONE: {**RATIO, **PUBLISHED},
    DEFAULT: {
        name: Settings.model_fields[name].default
        for name in ("local", "external", "strategy", "publisher_sampling")
    },
}
"""Settings by which honest nodes choose external groups, by the arms' names."""
TITLE: Final = "What attackers cost honest nodes, and what the defences cost"
PLANTED_TITLE: Final = "How far a word spreads that attackers plant around the tags of answers"


def num_attackers(share: float, honest: int) -> int:
    """Return the number of attackers that make up this share of a swarm with `honest` honest nodes;
    at least 1."""
    return max(1, round(honest * share / (1 - share)))


def all_arms(num_honest: int) -> tuple[Arm, ...]:
    """Return every attack on plain answers at every share."""
    return _arms(num_honest, KINDS, SHARES)


def quick_arms(num_honest: int) -> tuple[Arm, ...]:
    """Return every attack on plain answers, by a quarter of attackers."""
    return _arms(num_honest, KINDS, QUICK_SHARES)


def planted_arms(num_honest: int) -> tuple[Arm, ...]:
    """Return every attack on tagged answers, by a quarter of attackers."""
    return _arms(num_honest, TAGGED_KINDS, QUICK_SHARES)


def _arms(num_honest: int, kinds: Sequence[str], shares: Sequence[float]) -> tuple[Arm, ...]:
    """Return honest nodes alone, and attacked by each kind at each share, by each defence."""
    attacks: list[tuple[str, tuple[NodeSpec, ...]]] = [(CLEAN, ())]
    pairs = [(kind, share) for share in shares for kind in kinds if kind != NAMES]
    pairs += [(NAMES, NAMES_SHARE)] if NAMES in kinds else []
    for kind, share in pairs:
        hostile = (NodeSpec(settings=RATIO, behaviour=kind),)
        attacks.append((f"{kind} {share:.0%}", hostile * num_attackers(share, num_honest)))
    return tuple(
        Arm(name=f"{name}: {defence}", nodes=(NodeSpec(settings=mine),) * num_honest + hostile)
        for name, hostile in attacks
        for defence, mine in SETTINGS.items()
    )
