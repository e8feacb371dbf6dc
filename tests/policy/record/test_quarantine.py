"""The file of steps that were not taken, and what a trainer writes into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal_policy.node.link import NodeLink
from shoal_policy.record.quarantine import QUARANTINE_FILE, Quarantine, suspect
from tests.policy import training_cases as case
from tests.policy.poison import POISON, poison_token
from tests.policy.training_cases import trainer
from tests.support import factories as make
from tests.support.local_node import NodeThread


def one(number: int) -> dict[str, Any]:
    return {
        "round_number": number,
        "blame": "groups",
        "suspects": [suspect(make.task(number), [[1, 2], [3]], None)],
    }


def test_the_file_keeps_the_newest_entries_only(tmp_path: Path) -> None:
    made = Quarantine(tmp_path / QUARANTINE_FILE, max_entries=3)
    for number in range(5):
        made.add(**one(number))
        assert len(made.lines()) == min(number + 1, 3)
    entries = [json.loads(line) for line in made.lines()]
    assert [entry["round"] for entry in entries] == [2, 3, 4]
    assert entries[0]["groups"][0]["tokens"] == [2, 1]
    assert entries[0]["publishers"] == ["this node"]
    assert [path.name for path in tmp_path.iterdir()] == [QUARANTINE_FILE]


def test_a_file_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Quarantine(tmp_path / "missing" / QUARANTINE_FILE).add(**one(1))
    assert "quarantine not written" in caplog.text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return case.model_folder(tmp_path_factory.mktemp("model"))


def test_a_poisonous_group_is_set_aside_with_its_publisher(
    tmp_path: Path, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    with NodeThread(tmp_path) as node:
        texts = (POISON, "1", "2", "3")
        publisher = case.send(node, [case.external_group(1, texts)])
        link = NodeLink(node.node.client())
        made = trainer(tmp_path, model, link=link, local=0, external=1, rounds=2)
        poison_token(made.course.policy)
        before = case.weights(made.course.policy)
        held: list[object] = []
        made._on_round = lambda _record, _progress: held.extend(link.leases().held)
        made.run()
        # Nothing was learnt from it, so nothing of it could be given back later.
        assert held == []
        # Done with: it is not drawn a second time.
        assert made.course.progress.external_drawn == 1
        assert node.node.buffer.stats(0.0).consumed_total == 1
        status = node.node.link.status
        link._client.close()  # type: ignore[union-attr]
    assert case.same_weights(before, case.weights(made.course.policy))
    assert (status["batches_quarantined"], status["rollbacks"]) == (1, 0)
    (entry,) = map(json.loads, (tmp_path / QUARANTINE_FILE).read_text().splitlines())
    assert (entry["round"], entry["blame"]) == (1, "groups")
    assert entry["publishers"] == [publisher]
    assert entry["groups"][0]["texts"] == list(texts)
    assert len(bytes.fromhex(entry["groups"][0]["group_id"])) == 16
    assert publisher in caplog.text
