"""The comparison of an experiment's arms: one for every preset. Pure.

    runs ─▶ by arm, and by role where nodes of an arm differ ─▶ a row each ─▶ table, JSON
                                                             └▶ pairs of rows: t-tests over seeds

The figure of merit is the area under the curve of held-out pass@1, by round and by CPU second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from shoal_lab.experiment.plan import CLEAN, OURS, SILO
from shoal_lab.experiment.report.measures import (
    Difference,
    area,
    by_arm,
    cpu_at,
    differences,
    final_heldout,
    heldout_area,
    mean,
    over,
    tokens_at,
    total,
)
from shoal_lab.experiment.report.results import JobRun, mean_over_nodes
from shoal_lab.experiment.report.sheet import (
    Column,
    Row,
    Sheet,
    interval_of,
    mean_of,
    pairs_markdown,
    percent_of,
)
from shoal_lab.significance import Spread, spread

COUNTED: Final = ("spell_backward_easy", "letter_counting_easy", "simple_equations_easy")
"""The families for which results are claimed. The other three of `easy` have 120 to 210 questions
by meaning (docs/tasks.md); these have 2,500 to some 15,000. With other tasks every family
counts."""
MERIT: Final = (
    "held-out pass@1: area under its curve by round and by CPU second, each up to where 8/0 ends, "
    f"mean of the nodes, of the families {', '.join(COUNTED)}"
)
TESTS: Final = (
    "t-test on differences by seed, two-sided, of the area by round: a node's defaults minus each "
    "other arm (of the same role), or each arm minus its like alone or unattacked; adjusted (Holm) "
    "over these pairs",
    "the same of the area by CPU second",
)
CAPTION: Final = (
    "area: mean height of the curve of held-out pass@1, averaged over the nodes, with its 95 % "
    "interval over seeds (– with one seed); by CPU second and by token up to the end of 8/0, with "
    "a shorter curve extended at its last value; last: pass@1 at the end; total: sum over rounds "
    f"of the reward on own fresh questions; of `easy` only {', '.join(COUNTED)} count"
)
PLANTED: Final = (
    "planted: share of honest completions in the last tenth of the rounds that contain what "
    "attackers planted; of right: the same among completions with a reward"
)
PAIRS: Final = (
    "differences by seed, with mean and 95 % interval; p: t-test on them, adjusted for the number "
    "of arms (Holm). Nodes of one swarm are not independent, so a seed counts once"
)
Ends = Mapping[tuple[str, int], float]
"""The silo's final value, by unit and seed."""


def compared(runs: Sequence[JobRun]) -> list[JobRun]:
    """Return runs as they are compared: counted families only, and each role of an arm by itself.

    A role's run has no tokens and CPU seconds: they are means over all nodes.
    """
    found: list[JobRun] = []
    for run in (run.of_families(COUNTED) for run in runs):
        roles = list(dict.fromkeys(run.roles))
        found += [run] if len(roles) < 2 else [run.of_role(role) for role in roles]
    return found


def pairs_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of rows to compare: a node's defaults with all of its role, or each with a
    rival.

    A rival is the same swarm unattacked, the same nodes alone, or otherwise the silo.
    """
    roles = {name: name.partition(", ")[2] for name in names}
    ours = [name for name in names if name.partition(", ")[0].endswith(OURS)]
    if ours:
        return [
            (one, name)
            for one in ours
            for name in names
            if name not in ours and roles[name] == roles[one]
        ]
    found: list[tuple[str, str]] = []
    for name in names:
        rivals = (f"{CLEAN}: {name.partition(': ')[2]}", name.replace("4/4", "8/0", 1), SILO)
        found += [(name, one) for one in rivals if one in names and one != name][:1]
    return found


class Comparison:
    """The rows of some runs, perhaps none, and the pairs that are compared."""

    def __init__(self, runs: Sequence[JobRun], title: str) -> None:
        self.runs = compared(runs)
        arms, ends = by_arm(self.runs), ends_of(self.runs)
        self.rows = [Row(name=name, runs=mine) for name, mine in arms.items()]
        is_planted = any(run.planted for run in self.runs)
        self.sheet = Sheet(
            title=title,
            caption=f"{CAPTION}; {PLANTED}" if is_planted else CAPTION,
            columns=_columns(ends),
        )
        measures: dict[str, Callable[[JobRun], float]] = {"by round": heldout_area}
        if self.runs and all(run.cpu for run in self.runs):
            measures["by CPU second"] = partial(area_by_cpu, ends=ends)
        pairs = pairs_of(list(arms))
        self.pairs = {
            name: found
            for name, one in measures.items()
            if (found := differences(self.runs, pairs, one))
        }

    def markdown(self) -> str:
        """Return the table's page: rows, and pairs beneath them."""
        text = self.sheet.markdown(self.rows)
        if not self.pairs:
            return text
        heads = {f"area {name}": found for name, found in self.pairs.items()}
        return f"{text}\n{pairs_markdown(heads, PAIRS)}"

    def to_json(self) -> dict[str, Any]:
        """Return all numbers."""
        return {
            "mode": "in-process",
            "nodes": len(self.runs[0].fresh) if self.runs else 0,
            **self.sheet.by_measure(self.rows),
            "pairs": [
                _pair_json(name, one)
                for name, found in self.pairs.items()
                for one in found.values()
            ],
        }


def _pair_json(measure: str, one: Difference) -> dict[str, Any]:
    named = {"arm": one.one, "minus": one.other, "measure": measure}
    return named | {"difference": one.spread.to_json(), "p_adjusted": one.p}


def ends_of(runs: Sequence[JobRun]) -> Ends:
    """Return where each seed's silo ends, in CPU seconds and in tokens."""
    silos = [run for run in runs if run.arm == SILO]
    cpu = {("cpu", run.seed): run.cpu[-1] for run in silos if run.cpu}
    return {**cpu, **{("tokens", run.seed): run.tokens[-1] for run in silos if run.tokens}}


def area_by_cpu(run: JobRun, ends: Ends) -> float:
    """Return the mean height of a run's curve by CPU second, up to where its seed's silo ends."""
    places = cpu_at(run)
    return area(places, mean_over_nodes(run.held_out), ends.get(("cpu", run.seed), places[-1]))


def _by_tokens(run: JobRun, ends: Ends) -> float:
    places = tokens_at(run)
    return area(places, mean_over_nodes(run.held_out), ends.get(("tokens", run.seed), places[-1]))


def _columns(ends: Ends) -> Sequence[Column]:
    def over_all(
        measure: Callable[[JobRun], float], has: Callable[[JobRun], object] = lambda _run: True
    ) -> Callable[[Row], Spread | None]:
        """Return a column for the rows in which every run has the value."""
        return lambda row: over(row.runs, measure) if all(map(has, row.runs)) else None

    def has_cpu(run: JobRun) -> object:
        return run.cpu

    def has_tokens(run: JobRun) -> object:
        return run.tokens and run.tokens[-1]

    cpu, tokens = partial(area_by_cpu, ends=ends), partial(_by_tokens, ends=ends)
    return (
        Column(head="arm", of=lambda row: row.name, is_text=True),
        Column(key="seeds", of=lambda row: len(row.runs)),
        Column(head="area by round", key="area", of=over_all(heldout_area), shown=interval_of(3)),
        Column(
            head="by CPU second", key="area_by_cpu", of=over_all(cpu, has_cpu), shown=interval_of(3)
        ),
        Column(
            head="by token",
            key="area_by_token",
            of=over_all(tokens, has_tokens),
            shown=interval_of(3),
            in_narrow=False,
        ),
        Column(head="last", key="heldout", of=over_all(final_heldout), shown=interval_of(3)),
        Column(head="total", key="totals", of=over_all(total), shown=mean_of(".1f")),
        Column(
            head="CPU ms a round",
            key="cpu_ms",
            of=over_all(lambda run: 1000 * run.cpu[-1] / run.rounds, has_cpu),
            shown=mean_of(".0f"),
            in_narrow=False,
        ),
        Column(
            head="tokens",
            key="tokens",
            of=over_all(lambda run: run.tokens[-1], lambda run: run.tokens),
            shown=mean_of(".0f", 1e-3, " k"),
            in_narrow=False,
        ),
        Column(head="planted", key="planted", of=_late(lambda run: run.planted), shown=percent_of),
        Column(
            head="of right",
            key="planted_right",
            of=_late(lambda run: run.planted_right),
            shown=percent_of,
            in_narrow=False,
        ),
    )


def _late(series: Callable[[JobRun], Sequence[float]]) -> Callable[[Row], Spread | None]:
    """Return a function that averages the last tenth of the rounds, over the runs that have the
    series."""

    def found(row: Row) -> Spread | None:
        late = [mean(one[-max(1, len(one) // 10) :]) for run in row.runs if (one := series(run))]
        return spread(late) if late else None

    return found
