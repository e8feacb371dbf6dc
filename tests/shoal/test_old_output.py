"""What people and programs read from `shoal` is what an earlier commit printed, to the letter.

`tests.support.record_old_commit` kept what that commit's commands made of a node's answers, and
what its nodes answered.  A key may be added to an answer, none may go.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal.__main__ import main
from shoal_ipc import messages as m
from tests.policy.training_cases import external_group
from tests.support import factories as make
from tests.support.nodes import protocols_of
from tests.support.old_commit import ADDED, FIXTURES, SERVED, TAKEN_NO_LONGER, key_paths
from tests.support.processes import wait_for
from tests.support.replay_node import replay_node
from tests.support.running_node import RunningNode
from tests.support.schemas import check
from tests.support.shown_cases import VIEWS

SHOWN = json.loads((FIXTURES / "views_1bdb8eb.json").read_text(encoding="utf-8"))
UNBROKEN = json.loads((FIXTURES / "views_unbroken.json").read_text(encoding="utf-8"))
"""By the case's number: what is printed where that commit broke a cell inside, or ate a part."""
SINCE = json.loads((FIXTURES / "said_since.json").read_text(encoding="utf-8"))
"""By the command: what is said of task families, which another version configures otherwise,
the list of commands, which has groups, and that of task families, which has a `schema_version`."""
SAID = json.loads((FIXTURES / "said_1bdb8eb.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def quiet_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in [name for name in os.environ if name.startswith("SHOAL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("number", "case"),
    list(enumerate(SHOWN)),
    ids=[f"{number} {case['arguments'][0]}" for number, case in enumerate(SHOWN)],
)
def test_a_view_is_printed_as_it_was(
    number: int,
    case: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(case["columns"]))
    command = ["debug", *case["arguments"], "--data-dir", str(tmp_path)]
    (answer,) = case["answers"].values()
    with replay_node(tmp_path, case["answers"]):
        assert main(command) == case["code"]
        text = UNBROKEN.get(str(number), case["text"])
        assert capsys.readouterr().out.splitlines() == text
        assert main([*command, "--json"]) == case["code"]
        assert json.loads(capsys.readouterr().out) == case.get("json", answer)


def test_every_view_is_on_record() -> None:
    assert {case["arguments"][0] for case in SHOWN} == {
        *VIEWS,
        "block",
        "unblock",
        "protect",
        "ping",
    }


COMMANDS_ADDED = ("invite", "join", "logs", "page", "schema", "completion", "watch")
"""What `shoal` can do beyond that commit: left out of what it says of its commands."""


def _as_then(said: str) -> list[str]:
    lines = [line for line in said.splitlines() if line[:13].strip() not in COMMANDS_ADDED]
    for name in COMMANDS_ADDED:
        lines = [re.sub(rf", {name}\b", "", line) for line in lines]
    return lines


@pytest.mark.parametrize("case", SAID, ids=lambda case: case["arguments"] or "nothing")
def test_a_command_says_what_it_said(
    case: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(case["arguments"].split())
    said = capsys.readouterr()
    assert (code, _as_then(said.out), _as_then(said.err)) == (
        case["code"],
        SINCE.get(case["arguments"], case["out"]),
        case["err"],
    )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with a peer, groups of its own and of that peer, and something of every row."""
    root = tmp_path_factory.mktemp("pair")
    with (
        RunningNode(root / "one") as one,
        # It asks for a judge where none is, which is enough for it to tell of one.
        RunningNode(root / "two", bootstrap=[one.address], judge=one.address) as two,
    ):
        for number, running in enumerate((one, two)):
            with_groups = make.publish([external_group(number)], key=b"%d" % number)
            client = running.client()
            client.call(with_groups, m.PublishReply)
            client.close()
        wait_for(lambda: _has_heard(two) or None, 30.0, "groups of the other")
        yield two


def _has_heard(node: RunningNode) -> bool:
    client = node.client(m.Role.INSPECTOR)
    status = json.loads(client.call(m.Inspect(view="status"), m.InspectReply).json)
    client.close()
    return bool(status["groups_received"] and any(status["mesh"].values()))


@pytest.mark.parametrize("view", VIEWS)
def test_a_node_answers_with_every_key_that_it_had(
    view: str, node: RunningNode, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = next(case["answers"][view] for case in SHOWN if case["arguments"] == [view])
    assert main(["debug", view, "--data-dir", str(node.data_dir), "--json"]) == 0
    present = json.loads(capsys.readouterr().out)
    assert present["schema_version"] == recorded.get("schema_version")
    check(f"debug {view}", present)
    assert key_paths(recorded) <= key_paths(present)


def test_a_node_serves_the_protocols_that_it_served(node: RunningNode) -> None:
    assert trio.run(protocols_of, node.address) == (SERVED["node"] | ADDED) - TAKEN_NO_LONGER
