"""Every command's --json against its schema: views and commands of a running node, and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator

import jsonschema
import pytest

from shoal.__main__ import COMMANDS, main
from shoal.debug.views import VIEWS
from shoal.schema import SHAPES
from shoal.view.node import words_of
from shoal_ipc import messages as m
from shoal_p2p.peers.outside import wall_ms
from shoal_settings.exits import say_error
from tests.policy.training_cases import external_group
from tests.support import factories as make
from tests.support.running_node import RunningNode
from tests.support.schemas import check

ELSEWHERE = {
    "chat",
    "serve",
    "publish",
    "answer",
    "export data",
    "export model",
    "judge report",
    "swarm",
    "experiment",
    "page",
    "stop",
}
"""Checked by the tests that run them."""
WITHOUT_NODE = {
    "schema": "schema",
    "completion": "completion bash",
    "tasks": "tasks",
    "ps": "ps",
    "node": "node --print-config",
    "join": None,
    "bootstrap": "bootstrap --print-config",
    "judge": "judge --print-config",
    "trainer": "trainer --print-config",
}
STRANGER = "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"


pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with groups of its own and of another."""
    with RunningNode(tmp_path_factory.mktemp("schemas") / "node") as running:
        (running.data_dir / "node.log").write_text("2026-11-22 10:00:00 INFO node: began\n")
        client = running.client()
        client.call(make.publish([external_group(1)], key=b"own"), m.PublishReply)
        author = make.Author(running.node.member.manifest, now_ms=wall_ms())
        signed = author.signed(author.batch([external_group(99)]))
        running.call(running.node.pool.keep_all, [signed])
        client.close()
        yield running


def commands(node: RunningNode) -> Iterator[tuple[str, list[str]]]:
    """Every command whose answer is checked here, with its words."""
    here = ["--data-dir", str(node.data_dir)]
    publisher = next(iter(node.node.pool.buffer.counters()))
    for view in VIEWS:
        about = {order: [publisher] for order in ("block", "unblock", "protect")}
        words = words_of(view)
        yield " ".join(words), [*words, *about.get(view, []), *here]
    for name in ("invite", "logs", "watch"):
        yield name, [name, *here]
    for name, line in WITHOUT_NODE.items():
        if line is not None:
            yield name, line.split()


def test_every_command_prints_what_its_schema_says(
    node: RunningNode, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = set()
    for name, words in commands(node):
        capsys.readouterr()
        code = main([*words, "--json"])
        assert code in (0, 1), name
        printed = capsys.readouterr().out.splitlines()
        assert printed, name
        for line in printed:
            check(name, json.loads(line))
        seen.add(name)
    assert seen | ELSEWHERE | {"error", "join"} == set(SHAPES)
    assert {name.split()[0] for name in SHAPES} - {"error"} == set(COMMANDS)


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ("nod", 2),
        ("debug stauts", 2),
        ("status --data-dir missing", 3),
        ("status --last --data-dir missing", 3),
        ("node --rouns 3", 2),
        ("node --rounds many", 2),
        ("bootstrap --config none.toml", 2),
        ("trainer --log nonsense", 2),
        ("judge report --data-dir missing", 3),
        ("judge repot", 2),
        ("experiment papr", 2),
        ("experiment results --rounds 0", 2),
        ("tasks nonsense", 2),
        ("publish", 2),
        ("publish x --data-dir missing", 3),
        ("answer --data-dir missing", 3),
        ("export data --data-dir missing", 3),
        ("export model --data-dir missing", 3),
        ("export", 2),
        ("invite --data-dir missing", 3),
        ("join", 2),
        ("logs --data-dir missing", 3),
        ("schema nonsense", 2),
        ("completion csh", 2),
    ],
)
def test_an_error_is_an_object_on_standard_error(
    argv: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main([*argv.split(), "--json"])
    except SystemExit as end:
        ended = int(end.code or 0)
    assert ended == code
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    error = json.loads(line)
    check("error", error)
    assert error["error"]
    # Output after it is for people again.
    say_error("shoal", "after")
    assert capsys.readouterr().err == "shoal: after\n"


def test_a_missing_a_wrong_and_an_unknown_key_are_reported() -> None:
    good = {"schema_version": 1, "groups": 3, "new": 2}
    check("publish", good)
    for bad in ({**good, "new": "2"}, {**good, "more": 1}, {"schema_version": 1, "groups": 3}):
        with pytest.raises(jsonschema.ValidationError):
            check("publish", bad)
