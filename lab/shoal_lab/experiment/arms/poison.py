"""`shoal experiment poison` and `planted`: what attackers cost honest nodes.

Arms are a swarm of honest nodes, with or without attackers:

    KIND SHARE: none       as the paper's swarm takes part: publishers alike, all completions
    KIND SHARE: default    as `make node` takes part
    clean: NAME            no attackers

`planted` asks how far a word spreads where answers stand between tags. A verifier of tagged answers
reads nothing outside the tags. The reasoning stands before them, and nobody can tell it from a word
that an attacker plants:

    preface     before the tags, in the place of the reasoning
    behind      after the closing tag
    decoy       before the tags another pair of them: a preface that a model finds likely
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from shoal_lab.experiment.making.tagged import MODEL, TASK_FILES
from shoal_lab.experiment.plan import Arm, Experiment, NodeSpec
from shoal_lab.experiment.playing.attackers import NAMES, PLANTED
from shoal_lab.experiment.reading.measures import (
    LATE,
    heldout_area,
    late_heldout,
    mean,
    over,
    total,
)
from shoal_lab.experiment.reading.report import Reading
from shoal_lab.experiment.reading.results import Run
from shoal_lab.experiment.reading.sheet import (
    NOTHING,
    Column,
    Row,
    Sheet,
    interval_of,
    label,
    mean_of,
)
from shoal_lab.significance import Spread, spread
from shoal_settings.schema import Settings

if TYPE_CHECKING:  # matplotlib, which takes a second
    from matplotlib.figure import Figure

CLEAN: Final = "clean"
NONE: Final = "none"
DEFAULT: Final = "default"
SHARES: Final = (0.10, 0.25, 0.50)
QUICK_SHARES: Final = (0.25,)
NAMES_SHARE: Final = 2 / 3
"""Members that are one operator's names, in the place of a share of attackers."""
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
"""Plain answers are attacked as `make node` runs, with its model, tasks and rate."""
TAGGED_BASE: Final[Mapping[str, Any]] = {
    "model": str(MODEL),
    "tasks": "none",
    "task_file": list(TASK_FILES),
    "max_new_tokens": 16,
}
"""Settings that differ from those of `poison`: the tags and the word need room."""

RATIO: Final[Mapping[str, Any]] = {"local": 4, "external": 4}
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    NONE: RATIO,
    DEFAULT: {
        name: Settings.model_fields[name].default
        for name in ("local", "external", "strategy", "draws")
    },
}
"""Settings by which honest nodes choose what they learn from, by the arms' names."""
TITLE: Final = "What attackers cost honest nodes, and what the defences cost"


def num_attackers(share: float, honest: int) -> int:
    """Return how many attackers are this share of a swarm with so many honest nodes; at least 1."""
    return max(1, round(honest * share / (1 - share)))


def all_arms(num_honest: int) -> tuple[Arm, ...]:
    """Return every attack on plain answers at every share."""
    return arms_of(num_honest, KINDS, SHARES)


def quick_arms(num_honest: int) -> tuple[Arm, ...]:
    """Return every attack on plain answers, by a quarter of attackers."""
    return arms_of(num_honest, KINDS, QUICK_SHARES)


def planted_arms(num_honest: int) -> tuple[Arm, ...]:
    """Return every attack on tagged answers, by a quarter of attackers."""
    return arms_of(num_honest, TAGGED_KINDS, QUICK_SHARES)


def arms_of(num_honest: int, kinds: Sequence[str], shares: Sequence[float]) -> tuple[Arm, ...]:
    """Return honest nodes alone, and attacked by each kind at each share, by each defence."""
    attacks: list[tuple[str, tuple[NodeSpec, ...]]] = [(CLEAN, ())]
    pairs = [(kind, share) for share in shares for kind in kinds if kind != NAMES]
    pairs += [(NAMES, NAMES_SHARE)] if NAMES in kinds else []
    for kind, share in pairs:
        hostile = (NodeSpec(settings=RATIO, behaviour=kind),)
        attacks.append((f"{kind} {share:.0%}", hostile * num_attackers(share, num_honest)))
    return tuple(
        Arm(
            name=f"{name}: {defence}",
            nodes=(NodeSpec(settings=settings),) * num_honest + hostile,
        )
        for name, hostile in attacks
        for defence, settings in SETTINGS.items()
    )


def read(runs: Sequence[Run], experiment: Experiment) -> Reading:
    """Hold every attacked swarm against the clean ones."""
    rows = rows_of(experiment.arms, runs)
    honest = sum(node.behaviour == "honest" for node in experiment.arms[0].nodes)
    return Reading(
        sheet=SHEET,
        rows=rows,
        document={"honest_nodes": honest, "poison": SHEET.objects(rows)},
        figures=lambda: _figures(rows),
    )


def rows_of(arms: Sequence[Arm], runs: Sequence[Run]) -> list[Row]:
    """Return a row for each arm of these names that has runs."""
    mine = {arm.name: [run for run in runs if run.arm == arm.name] for arm in arms}
    rows = []
    for arm in arms:
        if not mine[arm.name] or ": " not in arm.name:
            continue
        kinds = [node.behaviour for node in arm.nodes if node.behaviour != "honest"]
        defence = arm.name.split(": ")[1]
        labels = {"arm": arm.name, "attack": kinds[0] if kinds else CLEAN, "defence": defence}
        rows.append(
            Row(
                runs=mine[arm.name],
                labels=labels | {"share": len(kinds) / len(arm.nodes)},
                beside={
                    "clean": mine.get(f"{CLEAN}: {NONE}", ()),
                    "own clean": mine.get(f"{CLEAN}: {defence}", ()),
                },
            )
        )
    return rows


def _over(measure: Callable[[Run], float]) -> Callable[[Row], Spread]:
    return lambda row: over(row.runs, measure)


def of_clean(
    which: str, measure: Callable[[Run], float] = late_heldout
) -> Callable[[Row], float | None]:
    """Return what divides a held-out figure by that of a clean swarm."""

    def found(row: Row) -> float | None:
        clean = row.beside[which]
        below = over(clean, measure).mean if clean else 0.0
        return over(row.runs, measure).mean / below if below else None

    return found


def _late(series: Callable[[Run], Sequence[float]]) -> Callable[[Row], Spread | None]:
    """Over the runs of an attack that plants: the mean of the last tenth of the rounds."""

    def found(row: Row) -> Spread | None:
        if row.labels["attack"] not in PLANTED:
            return None
        said = [shares for run in row.runs if (shares := series(run))]
        late = [mean(shares[-max(1, len(shares) // 10) :]) for shares in said]
        return spread(late) if late else None

    return found


def _share(value: Spread) -> str:
    """Show in percent, with the interval where there are seeds for one."""
    found = f"{100 * value.mean:.1f}"
    return f"{found}%" if value.half is None else f"{found} ± {100 * value.half:.1f}%"


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _attackers(share: float) -> str:
    return _percent(share) if share else NOTHING


SHEET: Final = Sheet(
    title=TITLE,
    caption=(
        f"held-out: honest nodes' pass@1, mean of the last {LATE} evaluations, and "
        "its 95 % interval over seeds (– with one); of clean: against the clean swarm without "
        "defences; own clean: against the clean swarm with the same defences; total: sum over "
        "rounds of the reward on own fresh questions; planted: honest completions of the last "
        "tenth of the rounds that hold what the attackers planted, with the interval; of right: "
        "the same of those that earned something"
    ),
    wide=100,
    columns=(
        label("attack", "attack", is_text=True),
        label("share", "attackers", shown=_attackers, digits=4),
        label("defence", "defence", is_text=True),
        Column(key="seeds", of=lambda row: len(row.runs)),
        Column(head="held-out", key="heldout", of=_over(late_heldout), shown=interval_of(3)),
        Column(head="of clean", key="of_clean", of=of_clean("clean"), shown=_percent, digits=4),
        Column(
            head="own clean",
            key="of_own_clean",
            of=of_clean("own clean"),
            shown=_percent,
            digits=4,
            in_narrow=False,
        ),
        Column(key="heldout_area", of=_over(heldout_area)),
        Column(key="area_of_own_clean", of=of_clean("own clean", heldout_area), digits=4),
        Column(head="total", key="total", of=_over(total), shown=mean_of(".1f"), in_narrow=False),
        Column(head="planted", key="planted", of=_late(lambda run: run.planted), shown=_share),
        Column(
            head="of right",
            key="planted_right",
            of=_late(lambda run: run.planted_right),
            shown=_share,
            in_narrow=False,
        ),
    ),
)


def _figures(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    from shoal_lab.experiment.drawing import attack_figures

    return attack_figures(rows)
