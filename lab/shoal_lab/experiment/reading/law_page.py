"""The law of `shoal_lab.experiment.reading.law` as Markdown."""

from __future__ import annotations

from shoal_lab.experiment.reading.law import WINDOW, Found, Predicted, Reached
from shoal_lab.experiment.reading.summary import Spread


def markdown(found: Found) -> str:
    """When each arm reached what, and how well silos foretell those that share."""
    thresholds = next(iter(found.reached.values()))
    heads = [f"rounds to {one.threshold:g}" for one in thresholds]
    lines = [f"| arm | looked at | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    lines += [
        f"| {arm} | {found.looked_at[arm]:.0f} | "
        + " | ".join(_reached(one, found.rounds) for one in times)
        + " |"
        for arm, times in found.reached.items()
    ]
    lines += ["", f"{_times_caption(found)}.", "", _power(found)]
    if found.predicted:
        lines += ["", "| arm | total | silos foretell | other seeds foretell | a round | X |"]
        lines += ["|---" * 6 + "|", *map(_row, found.predicted), "", f"{_FORETOLD}."]
    return "\n".join(lines) + "\n"


_FORETOLD = (
    "total: played; foretell: predicted minus played, by silos alone with others' groups counted "
    "as own ones, and each seed by all other seeds with their X; a round: distance of that curve "
    f"from the one played, {WINDOW} rounds averaged; X: what a group of others is worth beside an "
    "own one"
)


def _times_caption(found: Found) -> str:
    return (
        "looked at: groups a round, own and others'; rounds to: until the reward on own fresh "
        f"questions, averaged over {WINDOW} rounds, is that high, median over seeds; a seed that "
        f"was not there after {found.rounds} rounds counts as later"
    )


def _power(found: Found) -> str:
    more = 2**found.power.mean
    return (
        f"A = {_spread(found.power, 2)}, fitted to {', '.join(found.silos)}: who looks at twice as "
        f"many groups learns {more:.2f} times as fast."
    )


def _row(one: Predicted) -> str:
    cells = [one.arm, _spread(one.total, 1), _off(one.by_silos, one), _off(one.by_others, one)]
    return f"| {' | '.join(cells)} | {one.error:.3f} | {_spread(one.worth, 2)} |"


def _off(value: Spread, one: Predicted) -> str:
    share = value.mean / one.total.mean if one.total.mean else 0.0
    return f"{_spread(value, 1, '+')} ({share:+.0%})"


def _reached(one: Reached, rounds: int) -> str:
    median = f"> {rounds}" if one.median is None else f"{one.median:.0f}"
    return f"{median} ({one.missing} not yet)" if one.missing else median


def _spread(value: Spread, digits: int, sign: str = "") -> str:
    half = "–" if value.half is None else f"{value.half:.{digits}f}"
    return f"{value.mean:{sign}.{digits}f} ± {half}"
