"""`shoal experiment poison`: what attackers cost honest nodes. Pure.

Arms are a swarm of honest nodes, with or without attackers:

    KIND SHARE: none       as the paper's swarm takes part: publishers alike, all completions
    KIND SHARE: default    as `make node` takes part
    clean: NAME            no attackers
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal_lab.experiment.plan import Arm, NodeSpec
from shoal_lab.experiment.playing.attackers import PLANTED
from shoal_lab.experiment.reading.results import Run
from shoal_lab.experiment.reading.summary import Spread, late_heldout, spread, total
from shoal_settings.schema import Settings

CLEAN: Final = "clean"
NONE: Final = "none"
DEFAULT: Final = "default"
SHARES: Final = (0.10, 0.25, 0.50)
KINDS: Final = ("pad", "mark", "cut", "garbage", "wrong", "easy", "long", "phrase", "copied")
"""What is tried on plain answers; what needs tags is of `shoal_lab.experiment.poison.planted`."""

RATIO: Final[Mapping[str, Any]] = {"local": 4, "external": 4}
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    NONE: RATIO,
    DEFAULT: {
        name: Settings.model_fields[name].default
        for name in ("local", "external", "strategy", "draws")
    },
}
"""How honest nodes choose what they learn from, by the arms' names."""


def num_attackers(share: float, honest: int) -> int:
    """How many attackers make up this share of a swarm with so many honest nodes; at least 1."""
    return max(1, round(honest * share / (1 - share)))


def quick_arms(num_honest: int) -> tuple[Arm, ...]:
    """A quarter of attackers of each kind."""
    return (*clean(num_honest), *_attacked(num_honest, (0.25,)))


def all_arms(num_honest: int) -> tuple[Arm, ...]:
    """Every kind at every share."""
    return (*clean(num_honest), *_attacked(num_honest, SHARES))


def clean(num_honest: int) -> tuple[Arm, ...]:
    """Nobody attacks."""
    return tuple(
        Arm(name=f"{CLEAN}: {name}", nodes=(_honest(name),) * num_honest) for name in SETTINGS
    )


def attacked(num_honest: int, share: float, kind: str) -> tuple[Arm, ...]:
    """One kind of attack at one share."""
    hostile = NodeSpec(settings=RATIO, behaviour=kind)
    return tuple(
        Arm(
            name=f"{kind} {share:.0%}: {name}",
            nodes=(
                *(_honest(name),) * num_honest,
                *(hostile,) * num_attackers(share, num_honest),
            ),
        )
        for name in SETTINGS
    )


def _attacked(num_honest: int, shares: Sequence[float]) -> tuple[Arm, ...]:
    return tuple(
        arm for share in shares for kind in KINDS for arm in attacked(num_honest, share, kind)
    )


def _honest(name: str) -> NodeSpec:
    return NodeSpec(settings=SETTINGS[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One arm over its seeds."""

    attack: str
    """A name of `ATTACKS`, or `CLEAN`."""
    share: float
    """Attackers among all members."""
    defence: str
    num_seeds: int
    heldout: Spread
    """Honest nodes' pass@1, mean of the last `LATE` evaluations."""
    total: Spread
    of_clean: float | None
    """Held-out against the clean swarm without defences; None without one."""
    of_own_clean: float | None
    """Held-out against the clean swarm with the same defences."""
    planted: Spread | None
    """Share of honest completions in the last tenth of the rounds that hold what was planted."""
    planted_right: Spread | None
    """The same of those that are right; None where no round was told of them."""

    def to_json(self) -> dict[str, Any]:
        """As the command prints it."""
        return {
            "attack": self.attack,
            "share": round(self.share, 4),
            "defence": self.defence,
            "seeds": self.num_seeds,
            "heldout": self.heldout.to_json(),
            "total": self.total.to_json(),
            "of_clean": _rounded(self.of_clean),
            "of_own_clean": _rounded(self.of_own_clean),
            "planted": None if self.planted is None else self.planted.to_json(),
            "planted_right": None if self.planted_right is None else self.planted_right.to_json(),
        }


Series = Mapping[tuple[str, int], Sequence[float]]
"""A share by round, by arm and seed."""


def summarise(
    arms: Sequence[Arm], runs: Sequence[Run], planted: Series, planted_right: Series | None = None
) -> list[Cell]:
    """Sum up the arms that have runs; `planted` is each run's share, the other of what is right."""
    late = {arm.name: [late_heldout(run) for run in runs if run.arm == arm.name] for arm in arms}
    mean = {name: statistics.fmean(values) for name, values in late.items() if values}
    cells = []
    for arm in arms:
        mine = [run for run in runs if run.arm == arm.name]
        if mine and ": " in arm.name:
            cells.append(_cell(arm, mine, mean, planted, planted_right or {}))
    return cells


def _cell(
    arm: Arm,
    runs: Sequence[Run],
    mean: Mapping[str, float],
    planted: Series,
    planted_right: Series,
) -> Cell:
    kinds = [node.behaviour for node in arm.nodes if node.behaviour != "honest"]
    defence = arm.name.split(": ")[1]
    watched = bool(kinds) and kinds[0] in PLANTED
    return Cell(
        attack=kinds[0] if kinds else CLEAN,
        share=len(kinds) / len(arm.nodes),
        defence=defence,
        num_seeds=len(runs),
        heldout=spread([late_heldout(run) for run in runs]),
        total=spread([total(run) for run in runs]),
        of_clean=_ratio(mean[arm.name], mean.get(f"{CLEAN}: {NONE}")),
        of_own_clean=_ratio(mean[arm.name], mean.get(f"{CLEAN}: {defence}")),
        planted=_late(runs, planted) if watched else None,
        planted_right=_late(runs, planted_right) if watched else None,
    )


def _late(runs: Sequence[Run], shares: Series) -> Spread | None:
    """Over the runs that have any: the mean of the last tenth of the rounds."""
    late = [
        statistics.fmean(found[-max(1, len(found) // 10) :])
        for run in runs
        if (found := shares.get((run.arm, run.seed)))
    ]
    return spread(late) if late else None


def _ratio(value: float, base: float | None) -> float | None:
    return value / base if base else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
