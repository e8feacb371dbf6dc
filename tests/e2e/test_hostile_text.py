"""A peer whose every text has control characters, and everything that a user can see of it.

It joins a real node by gossip, with completions, questions, families, models and an agent. The
names of the swarm and of a family, task files and folders are as bad as permitted. Every command
that shows text is run in a narrow and in a wide terminal, and into a pipe.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

from shoal.__main__ import COMMANDS
from shoal.debug.views import VIEWS
from shoal.view.node import words_of
from shoal_base.visible import visible, visible_name
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_p2p.gossip.codec import sign_message
from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.peers.outside import wall_ms
from shoal_wire.digests import question_digest
from shoal_wire.manifest import Manifest, decode_manifest
from shoal_wire.types import InlineTask, PeerId
from tests.lab.judge_report.test_command import keep, late_gain, made_up
from tests.support import factories as make
from tests.support.hostile_text import ALL_THAT_UTF8_HOLDS
from tests.support.network import HostilePeer
from tests.support.nodes import open_test_host
from tests.support.processes import LOOPBACK, ShoalProcess, open_stage, wait_for
from tests.support.servers import open_listener
from tests.support.terminals import acting_on_screen, announced, shown

TEXT = ALL_THAT_UTF8_HOLDS.replace("\0", "")
"""A NUL is refused on the wire."""
NAME = "[/x] | :smile: \\x1b $\\frac{$ שלום \u3164\ufe0f" + "\u0301" * 20
"""Characters permitted in a manifest: printable ones, in Python's sense."""
FOLDER = "n\x1b]0;x\x07\u202e\rd"
AGENT = "[/x][bold red]\x1b[2J\\x1b \u202e$\\frac{$"
TASK_FILE = "f\x1b[2J\u2028.toml"
_NAME_BYTES = 190


def names() -> list[str]:
    """Return names that fit on the wire and together contain every character."""
    found = [""]
    for character in TEXT:
        if len((found[-1] + character).encode()) > _NAME_BYTES:
            found.append("")
        found[-1] += character
    return found


def publish(host: Libp2pHost, manifest: Manifest) -> rpc_pb2.RPC:
    """Return one batch for each name: an inline question with its answer, and completions."""
    author = make.Author(manifest, identity=host.identity, now_ms=wall_ms())
    raw, sent = ID.from_base58(host.peer_id).to_bytes(), []
    for number, name in enumerate(names(), start=1):
        task = make.task(number, inline=InlineTask(question=TEXT, answer="7"), question=TEXT)
        task = replace(task, family=name, verifier=name, question_digest=question_digest(TEXT))
        group = make.group(texts=(TEXT, TEXT[::-1]), of=task)
        policy = replace(make.POLICY, model_name=name)
        data = author.envelope(author.batch([group], policy=policy))
        sent.append(sign_message(host.identity, raw, manifest.topic(0), data, number))
    return rpc_pb2.RPC(publish=sent)


@contextmanager
def liar() -> Iterator[str]:
    """A listener that answers every dial with such text; yields its address."""

    def serve(stream: socket.socket) -> None:
        with stream, suppress(OSError):
            line = b"/multistream/1.0.0\n"
            stream.sendall(bytes([len(line)]) + line)
            output = names()[0].encode()[:100] + b"\n"
            stream.sendall(bytes([len(output)]) + output)
            stream.recv(1 << 12)

    listener = socket.create_server(("127.0.0.1", 0))
    with open_listener(listener, serve):
        port = listener.getsockname()[1]
        yield f"/ip4/127.0.0.1/tcp/{port}/p2p/{make.fresh_identity().peer_id}"


@contextmanager
def hostile_node(root: Path) -> Iterator[ShoalProcess]:
    """A real node with such names for its swarm, family and folders."""
    row = {"question": TEXT, "answer": TEXT.strip()}
    (root / "rows.jsonl").write_text(f"{json.dumps(row)}\n" * 20)
    (root / TASK_FILE).write_text(f'name = {json.dumps(NAME)}\nrows = "rows.jsonl"\n')
    bad = {"name": TEXT.replace("\x7f", "")[:60], "rows": "rows.jsonl"}
    (root / f"bad{TASK_FILE}").write_text(
        "\n".join(f"{key} = {json.dumps(value)}" for key, value in bad.items())
    )
    flags = ("--role=observe", "--inline-tasks", "--swarm-name", NAME, "--log-level", "debug")
    with open_stage(root) as stage:
        yield stage.node(FOLDER, *flags, "--tasks", f"easy,{root / TASK_FILE}")


def _debug(at: str, peer: str, out: Path) -> Iterator[list[str]]:
    more: dict[str, list[str]] = {
        "block": [make.fresh_identity().peer_id],
        "unblock": [peer],
        "protect": [peer],
    }
    for view in VIEWS:
        arguments = more.get(view, [])
        for json_too in ([], ["--json"]):
            if view == "bugreport":
                arguments = ["--out", str(out / f"{len(json_too)}{FOLDER}")]
            yield [*words_of(view), *arguments, *json_too, "--data-dir", at]
    yield ["debug", "rollouts", "--limit", "200", "--data-dir", at]
    yield ["debug", "block", TEXT, "--data-dir", at]


def runs(root: Path, peer: str, lies: str, out: Path) -> dict[str, list[list[str]]]:
    """Return the arguments to run for each command. A new command must be added here."""
    at, file = str(root / FOLDER), str(root / TASK_FILE)
    config = ["--swarm-name", NAME, "--tasks", TASK_FILE, "--print-config"]
    export = ["export", "data", "--data-dir", at, "--tasks", file]
    report = ["judge", "report", "--data-dir", str(root / "judged")]
    answers = out / f"a{TASK_FILE}"
    answers.write_text(json.dumps({"family": TEXT, "completions": []}))
    return {
        "watch": [["watch", "--data-dir", at], ["watch", "--json", "--data-dir", at]],
        "page": [
            ["page", "--data-dir", f"none{TEXT}"],
            ["page", "--http", TEXT, "--data-dir", at],
            ["page", "--http", "none", "--data-dir", at],
        ],
        "node": [
            ["node", *config],
            ["node", *config, "--json"],
            ["node", "--bootstrap", lies[:-9]],
        ],
        "invite": [
            ["invite", "--data-dir", at],
            ["invite", "--data-dir", at, "--with-key"],
            ["invite", "--data-dir", at, "--json"],
        ],
        "join": [["join", TEXT], ["join", f"shoal1{TEXT}"], ["join", f"--{TEXT}"]],
        "bootstrap": [["bootstrap", *config], ["bootstrap", "--swarm-name", TEXT]],
        "swarm": [["swarm", *config]],
        "trainer": [["trainer", *config[2:]]],
        "experiment": [["experiment", "results", "--rounds", "0"]],
        "chat": [
            ["chat", "--data-dir", f"none{TEXT}"],
            ["chat", "--checkpoint", TEXT],
            ["chat", "--model", "tiny", "--device", TEXT],
        ],
        "serve": [
            ["serve", "--port", "0", "--data-dir", f"none{TEXT}"],
            ["serve", "--port", "0", "--checkpoint", TEXT],
            ["serve", "--port", "0", "--model", "tiny", "--device", TEXT],
        ],
        "tasks": [
            ["tasks", file],
            ["tasks", file, "--json"],
            ["tasks", str(root / f"bad{TASK_FILE}")],
            ["tasks", TEXT],
            ["tasks", "--swarm", "--data-dir", at],
            ["tasks", "--swarm", "--json", "--data-dir", at],
        ],
        "tasks new": [
            ["tasks", "new", TEXT],
            ["tasks", "new", str(answers), "--name", TEXT, "--out", str(root / "made.toml")],
        ],
        "tasks try": [
            ["tasks", "try", str(root / f"bad{TASK_FILE}"), "--model", TEXT],
            ["tasks", "try", file, "--model", TEXT],
        ],
        "tasks lint": [
            ["tasks", "lint", str(root / f"bad{TASK_FILE}")],
            ["tasks", "lint", file],
            ["tasks", "lint", file, "--quick", "--json"],
        ],
        "tasks add": [
            ["tasks", "add", TEXT, "--data-dir", at],
            ["tasks", "add", TEXT, "--data-dir", f"none{TEXT}"],
        ],
        "tasks remove": [["tasks", "remove", TEXT, "--data-dir", at]],
        "publish": [
            ["publish", "--draw", "2", "--data-dir", at],
            ["publish", str(answers), "--data-dir", at],
            ["publish", TEXT, "--data-dir", at],
        ],
        "answer": [
            ["answer", "--family", NAME, "--data-dir", at],
            ["answer", "--family", TEXT, "--data-dir", at],
        ],
        "status": [["status", "--data-dir", at], ["status", "--json", "--data-dir", at]],
        "doctor": [["doctor", "--data-dir", at], ["doctor", "--json", "--data-dir", at]],
        "ps": [["ps"], ["ps", "--json"]],
        "stop": [["stop", f"none{FOLDER}"], ["stop", TEXT]],
        "export": [["export"], ["export", TEXT]],
        "export model": [
            ["export", "model", "--data-dir", f"none{FOLDER}", "--out", str(out / "model")],
            ["export", "model", "--data-dir", at, "--out", str(out / f"model{FOLDER}")],
        ],
        "export data": [
            [*export, "--out", str(out / "rows")],
            [*export, "--out", str(out / f"plain{FOLDER}"), "--no-verify", "--json"],
            ["export", "data", "--data-dir", f"none{FOLDER}"],
        ],
        "judge": [["judge", *config[:2], "--print-config"]],
        "judge report": [
            [*report, "--out", str(out / f"report{FOLDER}"), "--window", "30"],
            [*report, "--out", str(out / "report"), "--window", "30", "--json"],
        ],
        "debug": list(_debug(at, peer, out)),
        "logs": [
            ["logs", "--data-dir", at, "--lines", "10000"],
            ["logs", "--data-dir", at, "--lines", "10000", "--json"],
            ["logs", "--lines", TEXT],
        ],
        "schema": [["schema", "debug", "rollouts"], ["schema", TEXT]],
        "completion": [["completion", "bash"], ["completion", TEXT]],
    }


def test_every_command_is_thought_of(tmp_path: Path) -> None:
    words = {*COMMANDS, *(f"{name} {part}" for name in COMMANDS for part in COMMANDS[name].parts)}
    assert set(runs(tmp_path, "", "", tmp_path)) == words


async def test_nothing_acts_in_what_a_node_shows(tmp_path: Path) -> None:
    """The commands that start no task worker, in a narrow terminal."""
    await _show_all(tmp_path, (40,), _is_quick)


@pytest.mark.slow
async def test_nothing_acts_in_anything_that_is_shown(tmp_path: Path) -> None:
    await _show_all(tmp_path, (40, 200, None), lambda _argv: True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "last"),
    [
        (["node", "--role=observe", "--no-mdns"], "look inside: "),
        (["bootstrap"], "join it: "),
        (["judge"], "ask it: "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_peer_says_who_it_is_so_that_nothing_acts(
    tmp_path: Path, command: list[str], last: str
) -> None:
    flags = ["--listen", LOOPBACK, "--swarm-name", NAME, "--no-http", "--data-dir", FOLDER]
    output = announced([*command, *flags], tmp_path, last=last)
    assert visible_name(NAME) in output
    assert not acting_on_screen(output)


@pytest.mark.slow
def test_a_swarm_and_a_trainer_show_nothing_that_acts(tmp_path: Path) -> None:
    played = ["--rounds", "2", "--swarm-name", NAME, "--log", "none", "--data-dir"]
    commands = [
        ["swarm", "--nodes", "1", *played, FOLDER],
        ["trainer", "--alone", *played[:2], "--data-dir", FOLDER[:4]],
        ["status", "--last", "--data-dir", f"{FOLDER}/node-1"],
    ]
    found = shown(commands, tmp_path, columns=80)
    for argv, (code, text) in zip(commands, found, strict=True):
        assert code == 0, (argv, text)
        assert not acting_on_screen(text), (argv, text)
    assert not acting_on_screen((tmp_path / FOLDER / "node-1" / "log.txt").read_text())


def _is_quick(argv: list[str]) -> bool:
    starts_worker = argv[0] in ("publish", "answer", "export") or argv[:2] in (
        ["tasks", NAME],
        ["tasks", "try"],
        ["tasks", "lint"],
    )
    return not starts_worker and argv[:2] != ["judge", "report"]


async def _show_all(
    tmp_path: Path, widths: tuple[int | None, ...], wanted: Callable[[list[str]], bool]
) -> None:
    keep(
        tmp_path / "judged",
        [replace(r, model_name=NAME) for r in made_up(late_gain, peers=2, rounds=60)],
    )
    with liar() as lies, hostile_node(tmp_path) as node:
        client = NodeClient(node.data_dir / SOCKET_NAME)
        assert client.ensure()
        manifest = decode_manifest(client.manifest or b"")
        client.close()
        async with open_test_host(agent=AGENT) as host:
            await host.dial(node.address)
            attacker = HostilePeer(host, PeerId(node.peer_id))
            await attacker.send_rpc(publish(host, manifest))
            await trio.to_thread.run_sync(_wait_for_all, node)
            for columns in widths:
                out = tmp_path / f"out {columns}"
                out.mkdir()
                by_command = runs(tmp_path, host.peer_id, lies, out)
                commands = [
                    argv for of_one in by_command.values() for argv in of_one if wanted(argv)
                ]
                found = await trio.to_thread.run_sync(
                    partial(shown, commands, tmp_path, columns=columns)
                )
                _check(commands, found)
                if (out / "rows").exists():
                    _check_exported(out)
        node.stop()
        assert not acting_on_screen(node.log)
        assert "Traceback" not in node.log
        assert not acting_on_screen((node.data_dir / "out.txt").read_text())


def _wait_for_all(node: ShoalProcess) -> None:
    node.wait_status(lambda status: status["groups_received"] >= len(names()), "the peer's groups")
    wait_for(lambda: (node.view("peers") or {}).get("peers") or None, 20.0, "the peer")


def _check(commands: list[list[str]], found: list[tuple[int, str]]) -> None:
    texts = {}
    for argv, (code, text) in zip(commands, found, strict=True):
        assert not acting_on_screen(text), (argv, acting_on_screen(text), text[:2000])
        assert "Traceback" not in text, (argv, text)
        assert code in (0, 1, 2, 3), (argv, code, text)
        texts[" ".join(argv[:2]) + (" json" if "--json" in argv else "")] = text
    assert visible(TEXT[:20])[:40] in texts["debug rollouts"].replace("\n", "")
    answer = json.loads(texts["debug rollouts json"])
    assert answer["rollouts"][-1]["completions"][0]["text"] == TEXT
    assert answer["rollouts"][-1]["question"] == TEXT
    assert {row["model"] for row in answer["rollouts"]} == set(names())


def _check_exported(out: Path) -> None:
    card = (out / "rows" / "README.md").read_text()
    assert not acting_on_screen(card)
    assert len([line for line in card.splitlines() if line.startswith("| ")]) == 1 + len(names())
    rows = [json.loads(line) for line in (out / "rows" / "rollouts.jsonl").open(encoding="utf-8")]
    assert {text for row in rows for text in row["completions"]} == {TEXT, TEXT[::-1]}
    figure = (out / "report" / "judge.svg").read_text()
    assert not acting_on_screen(figure)
