"""Write what the old commit leaves and shows into `tests/fixtures`, from the history:

    python -m tests.support.record_old_commit

What comes of it differs from run to run in keys, clocks and rollouts; the tests do not mind.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from tests.policy import tiny_models
from tests.policy.training_cases import external_group
from tests.support import factories as make
from tests.support.old_commit import FIXTURES, OLD_COMMIT, debug, run, unpack_old_commit
from tests.support.old_scripts import DEEDS, in_old_tree
from tests.support.processes import LOOPBACK, Program, ShoalProcess, open_stage
from tests.support.replay_node import replay_node
from tests.support.shown_cases import SAID, cases

BLOCKED = "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"
PROTECTED = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
FLAGS = (
    *("--listen", LOOPBACK, "--no-mdns", "--log", "none", "--eval-per-family", "1"),
    *("--local", "2", "--external", "2", "--completions", "4", "--checkpoint-seconds", "0.2"),
)
TRAINING = (*FLAGS, "--model", "small", "--judge-every", "2", "--stay")
ANSWERS = tuple(str(number) for number in range(1, 21))
"""Of the small questions exactly one is right: a group with signal, which gets trained on."""
FOLDER = FIXTURES / f"folder_{OLD_COMMIT[:7]}"
LEFT_OUT = ("lock", "trainer.lock", "out.txt", "log.txt", "node.sock")
"""Of a data directory: locks, and what the test's own process keeps there."""


def main() -> None:
    """Record everything anew."""
    with tempfile.TemporaryDirectory() as text:
        root = Path(text)
        old = unpack_old_commit(root / "tree")
        for name in ("node", "judge", "export"):
            shutil.rmtree(FOLDER / name, ignore_errors=True)
        _save_small_model(root / "tree" / "small")
        answers = _live(old, root)
        in_old_tree(old, "-c", DEEDS, str(root / "one"), str(root / "two"))
        _keep(root / "one", "node")
        _keep(root / "judge", "judge")
        out = ("--out", str(FOLDER / "export"), "--format", "jsonl")
        done = run(old, "export", "--data-dir", str(root / "one"), *out)
        assert done.returncode == 0, done.stderr
        _write("views", _shown(old, root, answers))
        _write("said", _said(old, root))
        script = Path(__file__).with_name("flags.py")
        made = in_old_tree(old, str(script), old.module)
        (FIXTURES / f"flags_{OLD_COMMIT[:7]}.json").write_text(made)


def _live(old: Program, root: Path) -> dict[str, Any]:
    """Let a node and another, a bootstrap and a judge live; return what each tells of itself."""
    with open_stage(root, old) as stage:
        bootstrap = stage.bootstrap("bootstrap", "--relay")
        judge = stage.process("judge", "judge", "--listen", LOOPBACK).start()
        at = ("--bootstrap", bootstrap.address)
        two = stage.process("node", "two", *FLAGS, *at, "--rounds", "5", "--stay").start()
        _hand_over(two, 4)
        one = stage.process(
            "node", "one", *TRAINING, *at, "--judge", judge.address, "--rounds", "4"
        ).start()
        for node in (two, one):
            node.wait_status(lambda s: s["trainer"]["state"] == "finished", "the end of training")
        one.wait_status(lambda s: s["judge"]["judged"] >= 1, "a score", 240.0)
        debug(old, one.data_dir, "block", BLOCKED)
        debug(old, one.data_dir, "protect", PROTECTED)
        answers = _answers(one, two, bootstrap, judge)
        for process in (two, one, judge, bootstrap):
            assert process.stop() == 0, process.log
        # Alone, so that a batch waits for a peer.
        node = stage.process("node", "one", *TRAINING, "--rounds", "5").start()
        node.wait_status(lambda s: s["trainer"]["state"] == "finished", "one more round")
        assert node.stop() == 0, node.log
    return answers


def _save_small_model(folder: Path) -> None:
    """A model like the embedded one, but of a size that may stand in a repository."""
    torch.manual_seed(1)
    config = Qwen2Config(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=24,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        vocab_size=tiny_models.VOCAB,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tiny_models.tokenizer().save_pretrained(folder)


def _hand_over(node: ShoalProcess, count: int) -> None:
    """Let `node` share groups that no trainer made."""
    client = NodeClient(node.data_dir / SOCKET_NAME, role=m.Role.PUBLISHER, timeout_seconds=30.0)
    for number in range(count):
        batch = make.publish([external_group(number, ANSWERS)], key=b"handed over %d" % number)
        client.call(batch, m.PublishReply)
    client.close()


def _answers(
    one: ShoalProcess, two: ShoalProcess, bootstrap: ShoalProcess, judge: ShoalProcess
) -> dict[str, Any]:
    views = ("status", "id", "peers", "scores", "mesh", "topics", "buffer", "contributions")
    return {
        **{view: one.view(view) for view in (*views, "fetch", "doctor")},
        "rollouts": one.view("rollouts", limit=3),
        "ping": one.view("ping", peer=two.peer_id),
        "status of a bootstrap": bootstrap.view(),
        "status of a judge": judge.view(),
    }


def _shown(old: Program, root: Path, answers: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the old command prints, for a person and as JSON."""
    folder = root / "replay"
    folder.mkdir()
    for case in cases(answers):
        with replay_node(folder, case.answers):
            text, as_json = (
                run(
                    old,
                    *("debug", *case.arguments, *flags, "--data-dir", str(folder)),
                    columns=case.columns,
                )
                for flags in ((), ("--json",))
            )
        assert text.stderr == as_json.stderr == "", text.stderr
        assert text.returncode == as_json.returncode
        row = {
            "arguments": case.arguments,
            "columns": case.columns,
            "code": text.returncode,
            "text": text.stdout.splitlines(),
            "answers": case.answers,
        }
        told = json.loads(as_json.stdout)
        # Most views are passed on as they are.
        yield row if [told] == list(case.answers.values()) else {**row, "json": told}


def _said(old: Program, root: Path) -> Iterator[dict[str, Any]]:
    """What commands say that need no node, or miss one."""
    folder = root / "empty"
    folder.mkdir()
    for line in SAID:
        done = run(old, *line.split(), folder=folder)
        text = {"out": done.stdout.splitlines(), "err": done.stderr.splitlines()}
        yield {"arguments": line, "code": done.returncode, **text}


def _keep(data_dir: Path, name: str) -> None:
    """Copy a data directory, with one checkpoint of several."""
    target = FOLDER / name
    shutil.copytree(data_dir, target, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for checkpoint in sorted((target / "checkpoints").glob("*"))[:-1]:
        shutil.rmtree(checkpoint)


def _write(name: str, rows: Iterable[Any]) -> None:
    """A JSON file of one list, a row a line."""
    lines = [json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    (FIXTURES / f"{name}_{OLD_COMMIT[:7]}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
