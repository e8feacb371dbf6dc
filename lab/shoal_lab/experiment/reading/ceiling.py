"""How far an arm comes on the way from the silo to one trainer that has all the data. Pure.

The ceiling is the arm of one node that asks most questions a round, more than the silo does, such
as `24/0 nodes=1` beside six nodes at 4/4: as many answers and as many steps, in one place.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shoal_lab.experiment.plan import SILO
from shoal_lab.experiment.reading.measures import comparable, final_heldout, total
from shoal_lab.experiment.reading.results import Run
from shoal_lab.experiment.reading.sheet import NOTHING, percent_of
from shoal_lab.significance import Spread, spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One arm between the silo (0) and the ceiling (1)."""

    arm: str
    total: Spread | None
    """Share by mean totals; None where the ceiling is not above the silo."""
    heldout: Spread | None
    """The same of pass@1 at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The ceiling, and how near the other arms come."""

    arm: str
    ways: tuple[Way, ...]

    def to_json(self) -> dict[str, Any]:
        """As the command prints it."""
        measures = {
            name: {one.arm: found.to_json() for one in self.ways if (found := pick(one))}
            for name, pick in (("total", lambda w: w.total), ("heldout", lambda w: w.heldout))
        }
        return {"ceiling": {"arm": self.arm, **measures}}


def ceiling(runs: Sequence[Run], *, silo: str = SILO) -> Ceiling | None:
    """Return how far each arm comes; None without a silo, or without an arm that is a ceiling."""
    runs = comparable(runs)
    base = [run for run in runs if run.arm == silo]
    central = [run for run in runs if base and len(run.fresh) == 1 and _asks_more(run, base[0])]
    if not central:
        return None
    name = max(central, key=lambda run: run.questions).arm
    top = [run for run in runs if run.arm == name]
    others = dict.fromkeys(run.arm for run in runs if run.arm not in (silo, name))
    ways = tuple(_way([r for r in runs if r.arm == arm], base, top) for arm in others)
    return Ceiling(arm=name, ways=ways)


def markdown(found: Ceiling) -> str:
    """The shares as Markdown."""
    lines = [
        f"| of the way from {SILO} to {found.arm} | total reward | held-out |",
        "|---|---|---|",
        *(f"| {one.arm} | {_share(one.total)} | {_share(one.heldout)} |" for one in found.ways),
    ]
    caption = (
        "what an arm is above the silo, as a share of what one trainer with all the data is, by "
        "mean over seeds, and the 95 % interval of that ratio (– where that trainer is not above)"
    )
    return "\n".join(lines) + f"\n\n{caption}.\n"


def _asks_more(run: Run, silo: Run) -> bool:
    return run.questions > silo.questions


def _way(runs: Sequence[Run], base: Sequence[Run], top: Sequence[Run]) -> Way:
    return Way(
        arm=runs[0].arm,
        total=_share_of(runs, base, top, total),
        heldout=_share_of(runs, base, top, final_heldout),
    )


def _share_of(
    runs: Sequence[Run],
    base: Sequence[Run],
    top: Sequence[Run],
    measure: Callable[[Run], float],
) -> Spread | None:
    low, high = ({run.seed: measure(run) for run in arm} for arm in (base, top))
    shared = [run for run in runs if run.seed in low and run.seed in high]
    whole = [high[run.seed] - low[run.seed] for run in shared]
    if not shared or statistics.fmean(whole) <= 0:
        return None
    gained = [measure(run) - low[run.seed] for run in shared]
    way = statistics.fmean(whole)
    mean = statistics.fmean(gained) / way
    # A share of one seed is wild where its way is short, so not their mean: a ratio of means.
    left = spread([mine - mean * all_ for mine, all_ in zip(gained, whole, strict=True)])
    return Spread(mean, left.sd / way, None if left.half is None else left.half / way, left.units)


def _share(found: Spread | None) -> str:
    return NOTHING if found is None else percent_of(found)
