"""`/metrics`: a node's answers as Prometheus reads them. No I/O of its own.

    fields of answers that name a metric ──walk──▶ METRICS ──values of this node──▶ text

A field says its metric's name and help itself (`shoal_ipc.answers.form.measured`). docs/metrics.md
has a line for each, and a test compares. The labels that others fill in, peer ids and families, are
bounded in number and have been made visible when they were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, get_args, get_type_hints

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from shoal.view.asking import LatestAnswers
from shoal.view.model import ShownPeer
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import Status
from shoal_ipc.answers.peer import Refusals

MAX_ROWS: Final = 32
"""Publishers, families or reasons with samples of their own: the first, which weigh most."""

Labels = tuple[str, ...]
Sample = tuple[str, Labels, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. The name of a counter ends in ``_total``."""

    name: str
    says: str
    labels: Labels = ()


_UP: Final = Metric(name="shoal_up", says="Whether the node answers on its socket.")
_INFO: Final = Metric(
    name="shoal_peer_info",
    says="The peer's kind, id and swarm; always 1.",
    labels=("kind", "peer_id", "swarm", "digest"),
)
_FINDINGS: Final = Metric(
    name="shoal_findings",
    says="Findings of the doctor, by severity.",
    labels=("state",),
)


def _named(kind: type, labels: Labels = ()) -> Iterator[Metric]:
    """Yield the metrics that an answer's fields, and the answers within it, name."""
    hints = get_type_hints(kind)
    for one in fields(kind):
        about = one.metadata
        if "metric" in about:
            yield Metric(name=about["metric"], says=about["says"], labels=labels)
        more = (*labels, about["label"]) if "label" in about else labels
        for inside in _types_in(hints[one.name]):
            yield from _named(inside, more)


def _types_in(hint: Any) -> Iterator[type]:
    if is_dataclass(hint):
        yield hint  # type: ignore[misc]  # a class: hints hold no instances
    for inside in get_args(hint):
        yield from _types_in(inside)


METRICS: Final = (
    *(_UP, _INFO, _FINDINGS),
    *(metric for kind in (Status, Ledger, Refusals) for metric in _named(kind)),
)


def metrics_text(shown: ShownPeer, answers: LatestAnswers) -> str:
    """Return the answer to a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(list(_samples(shown, answers))))
    return generate_latest(registry).decode("utf-8")


class _Samples(Collector):
    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield every metric that has a value."""
        for metric in METRICS:
            found = [
                (labels, value) for name, labels, value in self._samples if name == metric.name
            ]
            if found:
                is_counter = metric.name.endswith("_total")
                kind = CounterMetricFamily if is_counter else GaugeMetricFamily
                family = kind(metric.name, metric.says, labels=metric.labels)
                for labels, value in found:
                    family.add_metric(labels, value)
                yield family


def _samples(shown: ShownPeer, answers: LatestAnswers) -> Iterator[Sample]:
    yield _UP.name, (), float(shown.right.state != "down")
    who = (shown.kind, shown.peer_id, shown.swarm.name, shown.swarm.digest)
    yield _INFO.name, who, 1.0
    states = [one.state for one in shown.right.findings]
    for state in ("warn", "bad"):
        yield _FINDINGS.name, (state,), float(states.count(state))
    for answer in (answers.status, answers.ledger, shown.refused):
        if answer is not None:
            yield from _inside(answer, ())


def _inside(answer: Any, labels: Labels) -> Iterator[Sample]:
    """Yield the samples of an answer, and of those within it."""
    for one in fields(answer):
        value, about = getattr(answer, one.name), one.metadata
        if value is None:
            continue
        if "metric" in about:
            value = value.get(about["key"]) if isinstance(value, Mapping) else value
            if value is not None:
                yield about["metric"], labels, float(value)
        elif "label" in about:
            yield from _rows(value, about["by"], labels)
        elif is_dataclass(value):
            yield from _inside(value, labels)


def _rows(rows: Any, by: str, labels: Labels) -> Iterator[Sample]:
    named = rows.items() if isinstance(rows, Mapping) else ((getattr(r, by), r) for r in rows)
    for name, row in list(named)[:MAX_ROWS]:
        if row is not None:
            yield from _inside(row, (*labels, name))
