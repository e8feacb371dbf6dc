"""`/metrics` and the probes: what Prometheus reads of a node."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from shoal.view.blocks import parts_of
from shoal.view.build import build
from shoal.view.folder_follower import LatestAnswers
from shoal.view.metrics import MAX_ROWS, METRICS, metrics_text
from shoal.view.model import ShownPeer
from shoal_policy.record.progress import RunCounters
from shoal_policy.record.status import build_status
from tests.shoal.view.node_answers import AT_UNIX, FRIEND, ME, answers, view


def shown(of: LatestAnswers) -> ShownPeer:
    return build(of, data_dir="/somewhere/node", at_unix=AT_UNIX)


def scraped(of: LatestAnswers) -> dict[tuple[str, tuple[str, ...]], float]:
    """What a scrape brings, read by Prometheus' own parser."""
    text = metrics_text(shown(of), of)
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_node_is_scraped() -> None:
    found = scraped(answers())
    for name, value in {
        "shoal_up": 1,
        "shoal_rounds_total": 23,
        "shoal_local_reward_mean": 0.36,
        "shoal_external_signal_ratio": 0.61,
        "shoal_held_out_pass_ratio": 0.25,
        "shoal_data_dir_bytes": 5_000_000,
    }.items():
        assert found[name, ()] == value
    assert found["shoal_abs_advantage_total", (FRIEND,)] == 61.0
    assert found["shoal_refused_messages_total", ("bad_signature",)] == 2
    assert found["shoal_process_cpu_ratio", ("trainer",)] == 0.9
    assert found["shoal_peer_info", ("41" * 32, "node", ME, "shoal")] == 1
    assert found["shoal_findings", ("warn",)] == 1
    assert found["shoal_family_reward_mean", ("gcd",)] == 0.4


def test_one_that_is_down_is_scraped_all_the_same() -> None:
    found = scraped(LatestAnswers(down_since_unix=0.0))
    assert found["shoal_up", ()] == 0
    assert ("shoal_rounds_total", ()) not in found


def test_names_are_as_prometheus_has_them() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.name.startswith("shoal_")
        assert not metric.name.endswith(("_ms", "_kb", "_percent", "_minutes"))
        assert metric.help.endswith(".")


def test_strangers_can_neither_add_lines_nor_series_without_end() -> None:
    bad = 'x"}\nshoal_up 7\n# \x1b[2J\u202e\\'
    many: list[dict[str, Any]] = [
        {"peer_id": f"{bad}{n}", "groups_trained": 1, "signal": 1.0} for n in range(500)
    ]
    families = [{"name": f"{bad}{n}", "reward": 0.5} for n in range(500)]
    of = answers(ledger={"publishers": many, "families": families})
    found = scraped(of)
    assert found["shoal_up", ()] == 1
    assert sum(name == "shoal_abs_advantage_total" for name, _ in found) == MAX_ROWS
    assert sum(name == "shoal_family_reward_mean" for name, _ in found) == MAX_ROWS
    text = metrics_text(shown(of), of)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert not [line for line in text.splitlines() if line.startswith("shoal_up 7")]


def test_a_figure_of_the_trainer_is_scraped_and_shown_in_every_view() -> None:
    """The same field; `docs/contributing/changing.md` adds one."""
    report = json.loads(build_status("training", RunCounters(tokens_generated=7), current=None))
    one = view(status={"round": 3, "trainer": {**report, "reward_local": 0.125}})
    found = scraped(one.answers)
    assert found["shoal_generated_tokens_total", ()] == 7
    assert found["shoal_local_reward_mean", ()] == 0.125
    for name in ("page", "watch"):
        assert "value='0.125'" in str(parts_of("learning", one, name))
