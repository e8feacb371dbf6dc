"""`/metrics`: what is shown of a node as Prometheus reads it. Pure.

    Shown, Answers ─▶ METRICS, a row each ─▶ prometheus_client's text

docs/metrics.md has a line for each, and a test compares. The labels that others fill in, peer ids
and families, are bounded in number and have been made visible by `build`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from shoal.view.answers import Answer, Answers
from shoal.view.model import PublisherShown, Shown
from shoal.view.reading import part, real

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_PUBLISHERS: Final = 32
"""Publishers with samples of their own: those learnt from most."""
MAX_FAMILIES: Final = 64

Sample = tuple[tuple[str, ...], float | None]
"""Values of a metric's labels, and its value; None is left out."""
Samples = Callable[[Shown, Answer], Iterable[Sample]]
"""From what is shown, and the status behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. The name of a counter ends in ``_total``."""

    name: str
    says: str
    samples: Samples
    labels: tuple[str, ...] = ()


def metrics_text(shown: Shown, answers: Answers) -> str:
    """Return the answer to a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Of(shown, answers.status or {}))
    return generate_latest(registry).decode("utf-8")


class _Of(Collector):
    def __init__(self, shown: Shown, status: Answer) -> None:
        self._shown, self._status = shown, status

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield every metric that has a value."""
        for metric in METRICS:
            is_counter = metric.name.endswith("_total")
            kind = CounterMetricFamily if is_counter else GaugeMetricFamily
            family = kind(metric.name, metric.says, labels=metric.labels)
            for labels, value in metric.samples(self._shown, self._status):
                if value is not None:
                    family.add_metric(labels, value)
            if family.samples:
                yield family


def _shown(value: Callable[[Shown], float | None]) -> Samples:
    return lambda shown, _status: [((), value(shown))]


def _status(*path: str) -> Samples:
    """A number of the status view."""

    def samples(_shown: Shown, status: Answer) -> Iterable[Sample]:
        at = status
        for key in path[:-1]:
            at = part(at, key)
        return [((), real(at, path[-1]))]

    return samples


def _publishers(value: Callable[[PublisherShown], float | None]) -> Samples:
    return lambda shown, _status: [
        ((one.peer_id,), value(one)) for one in shown.publishers[:MAX_PUBLISHERS]
    ]


def _processes(key: str) -> Samples:
    def samples(_shown: Shown, status: Answer) -> Iterable[Sample]:
        found = part(part(status, "cost"), "processes")
        return [((name,), real(part(found, name), key)) for name in ("node", "worker", "trainer")]

    return samples


def _info(shown: Shown, _status: Answer) -> Iterable[Sample]:
    return [((shown.kind, shown.peer_id, shown.swarm.name, shown.swarm.digest), 1.0)]


def _findings(shown: Shown, _status: Answer) -> Iterable[Sample]:
    found = [one.state for one in shown.right.findings]
    return [((state,), float(found.count(state))) for state in ("warn", "bad")]


METRICS: Final = (
    Metric(
        name="shoal_up",
        says="Whether the node answers on its socket.",
        samples=_shown(lambda shown: float(shown.right.state != "down")),
    ),
    Metric(
        name="shoal_peer_info",
        says="Who it is; always 1.",
        samples=_info,
        labels=("kind", "peer_id", "swarm", "digest"),
    ),
    Metric(
        name="shoal_uptime_seconds",
        says="Time since the start.",
        samples=_shown(lambda shown: shown.right.uptime_s),
    ),
    Metric(
        name="shoal_findings",
        says="What doctor finds, by how serious it is.",
        samples=_findings,
        labels=("state",),
    ),
    Metric(name="shoal_peers", says="Connected peers.", samples=_status("peers")),
    Metric(name="shoal_rounds_total", says="Rounds completed.", samples=_status("round")),
    Metric(
        name="shoal_round_seconds",
        says="Wall time of the latest round.",
        samples=_status("trainer", "last_round", "seconds"),
    ),
    Metric(
        name="shoal_reward_own",
        says="Mean own reward of the latest 20 rounds.",
        samples=_shown(lambda shown: shown.learning.reward_own),
    ),
    Metric(
        name="shoal_reward_start",
        says="Mean own reward of the first 20 rounds.",
        samples=_shown(lambda shown: shown.learning.reward_start),
    ),
    Metric(
        name="shoal_held_out_pass_ratio",
        says="Share of held-out questions that passed, in the latest evaluation.",
        samples=_shown(lambda shown: shown.learning.held_out),
    ),
    Metric(
        name="shoal_family_reward",
        says="Mean own reward in one task family, lately.",
        samples=lambda shown, _status: [
            ((one.name,), one.reward) for one in shown.learning.families[:MAX_FAMILIES]
        ],
        labels=("family",),
    ),
    Metric(
        name="shoal_tokens_generated_total",
        says="Tokens this node generated.",
        samples=_status("trainer", "tokens_generated"),
    ),
    Metric(
        name="shoal_groups_published_total",
        says="Own groups on disk to be shared.",
        samples=_status("groups_published"),
    ),
    Metric(
        name="shoal_groups_received_total",
        says="Valid groups of others.",
        samples=_status("groups_received"),
    ),
    Metric(
        name="shoal_groups_external_trained_total",
        says="Groups of others trained on.",
        samples=_status("groups_external_used"),
    ),
    Metric(
        name="shoal_learnt_groups",
        says="Groups trained on, of the publishers learnt from most.",
        samples=_publishers(lambda one: float(one.trained)),
        labels=("publisher",),
    ),
    Metric(
        name="shoal_learnt_signal",
        says="What they moved the weights by: the sum of absolute advantages.",
        samples=_publishers(lambda one: one.signal),
        labels=("publisher",),
    ),
    Metric(
        name="shoal_signal_others_ratio",
        says="Share of the last hour's signal that came from others.",
        samples=_shown(lambda shown: shown.worth.others_signal_share),
    ),
    Metric(
        name="shoal_buffer_groups",
        says="Groups of others in the buffer.",
        samples=_status("buffer", "groups"),
    ),
    Metric(
        name="shoal_accepted_total",
        says="Messages of others that were taken.",
        samples=_status("verdicts", "accept"),
    ),
    Metric(
        name="shoal_refused_total",
        says="Messages of others that were not, by reason.",
        samples=lambda shown, _status: [
            ((one.reason,), float(one.count)) for one in shown.refused.counts
        ],
        labels=("reason",),
    ),
    Metric(
        name="shoal_bytes_received_total",
        says="Bytes over its sockets since the start.",
        samples=_status("cost", "bytes_in"),
    ),
    Metric(
        name="shoal_bytes_sent_total",
        says="Bytes over its sockets since the start.",
        samples=_status("cost", "bytes_out"),
    ),
    Metric(
        name="shoal_process_cpu_ratio",
        says="Processor time a second, over the last minute: 1 is one core.",
        samples=_processes("cpu"),
        labels=("process",),
    ),
    Metric(
        name="shoal_process_resident_memory_bytes",
        says="Memory that the process has in use.",
        samples=_processes("rss_bytes"),
        labels=("process",),
    ),
    Metric(
        name="shoal_data_dir_bytes",
        says="What its data directory occupies.",
        samples=_status("cost", "disk_bytes"),
    ),
    Metric(
        name="shoal_disk_free_bytes",
        says="What is free on its disk.",
        samples=_status("disk", "free_bytes"),
    ),
    Metric(
        name="shoal_judge_score",
        says="Mean of the judge's latest 20 scores.",
        samples=_shown(lambda shown: shown.worth.judge_score),
    ),
)
