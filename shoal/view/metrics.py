"""`/metrics`: a node's answers in Prometheus' text format. No I/O of its own.

    fields of answers that name a metric ──walk──▶ METRICS ──values of this node──▶ text

A field says its metric's name and help itself (`shoal_ipc.answers.form.measured`). docs/metrics.md
has a line for each, and a test compares. Labels with text of peers (peer ids and families) are
bounded in number and have been made visible when they were read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, get_args, get_type_hints

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from shoal.view.folder_follower import LatestAnswers
from shoal.view.model import ShownPeer
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import Status
from shoal_ipc.answers.peer import Refusals

MAX_ROWS: Final = 32
"""Publishers, families or reasons with samples of their own: the first, which weigh most."""

Labels = tuple[str, ...]
Sample = tuple[str, Labels, float]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. The name of a counter ends in ``_total``."""

    name: str
    help: str
    labels: Labels = ()


def _named(kind: type, labels: Labels = ()) -> Iterator[Metric]:
    """Yield the metrics that an answer's fields, and the answers within it, name."""
    hints = get_type_hints(kind)
    for one in fields(kind):
        about = one.metadata
        if "metric" in about:
            yield Metric(about["metric"], about["help"], labels)
        more = (*labels, about["label"]) if "label" in about else labels
        for inside in _types_in(hints[one.name]):
            yield from _named(inside, more)


def _types_in(hint: Any) -> Iterator[type]:
    if is_dataclass(hint):
        yield hint  # type: ignore[misc]  # a class: hints hold no instances
    for inside in get_args(hint):
        yield from _types_in(inside)


METRICS: Final = (
    Metric("shoal_up", "Whether the node answers on its socket."),
    Metric(
        "shoal_peer_info",
        "The peer's kind, id and swarm; always 1.",
        ("kind", "peer_id", "swarm", "digest"),
    ),
    Metric("shoal_findings", "Findings of the doctor, by severity.", ("state",)),
    *(metric for kind in (Status, Ledger, Refusals) for metric in _named(kind)),
)


def metrics_text(shown: ShownPeer, answers: LatestAnswers) -> str:
    """Return the answer to a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(_samples(shown, answers)))
    return generate_latest(registry).decode("utf-8")


class _Samples(Collector):
    def __init__(self, samples: Iterator[Sample]) -> None:
        self._samples: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        for name, labels, value in samples:
            self._samples[name].append((labels, value))

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield every metric that has a value."""
        for metric in METRICS:
            if found := self._samples.get(metric.name):
                is_counter = metric.name.endswith("_total")
                kind = CounterMetricFamily if is_counter else GaugeMetricFamily
                family = kind(metric.name, metric.help, labels=metric.labels)
                for labels, value in found:
                    family.add_metric(labels, value)
                yield family


def _samples(shown: ShownPeer, answers: LatestAnswers) -> Iterator[Sample]:
    yield "shoal_up", (), float(shown.health.state != "down")
    who = (shown.kind, shown.peer_id, shown.swarm.name, shown.swarm.digest)
    yield "shoal_peer_info", who, 1.0
    for state in ("warn", "bad"):
        count = sum(one.state == state for one in shown.health.findings)
        yield "shoal_findings", (state,), float(count)
    for answer in (answers.status, answers.ledger, shown.refused):
        yield from _inside(answer, ())


def _inside(answer: Any, labels: Labels) -> Iterator[Sample]:
    """Yield the samples of an answer, and of those within it."""
    for one in fields(answer) if is_dataclass(answer) else ():
        value, about = getattr(answer, one.name), one.metadata
        if "metric" in about:
            key = about.get("key")
            value = getattr(value, key) if key and value is not None else value
            if value is not None:
                yield about["metric"], labels, float(value)
        elif "label" in about:
            by = about["by"]
            named = value.items() if not by else ((getattr(row, by), row) for row in value)
            for name, row in list(named)[:MAX_ROWS]:
                yield from _inside(row, (*labels, name))
        else:
            yield from _inside(value, labels)
