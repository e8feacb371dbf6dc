"""A data directory that an earlier version wrote, kept in the repository, is read to the last row.

`tests/fixtures/old_folder/README.md` says how it came about.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal.__main__ import main
from shoal_p2p.intake.validation import reopen_batch
from shoal_p2p.peers.peer_book import PeerBook
from shoal_p2p.reputation.peer_manager import REPUTATION_FILE
from shoal_p2p.reputation.reputation import Reputation
from shoal_p2p.store.archive import ARCHIVE_FILE, read_archive
from shoal_p2p.store.store import StoreCore
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.types import SignedBatch
from tests.support.data_folder import (
    DataFolder,
    newest_checkpoint,
    read_folder,
    read_json,
    read_metrics,
)
from tests.support.nodes import protocols_of
from tests.support.processes import LOOPBACK, open_stage
from tests.support.running_node import RunningNode

FOLDER = Path(__file__).parents[1] / "fixtures/old_folder"
OLD = FOLDER / "node"
CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"
GONE = {"balance", "reward_sum", "steps_no_signal"}
"""Counters of earlier versions that no version reads any more."""
SERVED = {
    *("/ipfs/id/1.0.0", "/ipfs/ping/1.0.0", "/meshsub/1.0.0", "/meshsub/1.1.0", "/meshsub/1.2.0"),
    *("/shoal/manifest/1", "/shoal/peers/1", "/shoal/reach/1", "/shoal/rollouts/1"),
    "/libp2p/circuit/relay/0.2.0/stop",
}
"""The protocols that peers of earlier versions ask a node for."""


@pytest.fixture
def node_dir(tmp_path: Path) -> Path:
    return _copy("node", tmp_path)


def _copy(name: str, root: Path) -> Path:
    """A copy that may be written, with the modes that git does not keep."""
    target = Path(shutil.copytree(FOLDER / name, root / name))
    (target / "identity.key").chmod(0o600)
    return target


def _rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def _store(node_dir: Path) -> StoreCore:
    peer_id = read_json(node_dir / "last-status.json")["peer_id"]
    return StoreCore(node_dir / "node.db", peer_id=peer_id)


def test_the_store_gives_back_every_batch_and_every_consumed_id(node_dir: Path) -> None:
    columns = "batch_id, publisher, sequence, own, envelope, received_ms"
    batches = _rows(node_dir / "node.db", f"SELECT {columns} FROM batches ORDER BY received_ms")
    consumed = _rows(node_dir / "node.db", "SELECT group_id FROM consumed ORDER BY position")
    with closing(_store(node_dir)) as store:
        state = store.load()
        stored = store.batches(state.batch_ids)
        unsent = store.unsent()
    found = [
        (b.batch_id, b.publisher, b.sequence, b.own, b.envelope, b.received_ms) for b in stored
    ]
    assert found == batches
    assert {own for *_, own, _, _ in batches} == {0, 1}
    assert [(group_id,) for group_id in state.consumed_ids] == consumed
    assert len(consumed) > 2
    assert {b.batch_id: b.envelope for b in unsent} == read_folder(OLD).unsent
    assert len(unsent) == 1


def test_the_store_goes_on_counting_and_knows_what_was_handed_over(node_dir: Path) -> None:
    before = read_folder(node_dir)
    numbers: list[tuple[int, int]] = []

    def envelope(sequence: int, previous: int) -> bytes:
        numbers.append((sequence, previous))
        return b"an envelope"

    with closing(_store(node_dir)) as store:
        for key, (sequence, batch_id) in before.client_keys.items():
            again = store.reserve_own(key, envelope)
            assert (again.sequence, again.batch_id, again.is_new) == (sequence, batch_id, False)
        made = store.reserve_own(b"a new key", envelope)
    last = max(sequence for sequence, _ in before.client_keys.values())
    assert numbers == [(before.next_sequence, last)]
    assert (made.sequence, made.is_new) == (before.next_sequence, True)


def test_the_store_keeps_the_proof_against_a_publisher(node_dir: Path) -> None:
    query = "SELECT publisher, sequence, first, second FROM equivocations"
    (row,) = _rows(node_dir / "node.db", query)
    with closing(_store(node_dir)) as store:
        (pair,) = store.evidence()
    assert (pair.publisher, pair.sequence, pair.first, pair.second) == row


def test_peers_and_their_standing_are_as_they_were_left(node_dir: Path) -> None:
    book = PeerBook.from_json((node_dir / "peers.json").read_text())
    assert len(book) == 3
    assert json.loads(book.to_json()) == read_json(node_dir / "peers.json")
    saved = read_json(node_dir / REPUTATION_FILE)
    reputation, then = Reputation(), saved["saved_ms"]
    reputation.take((node_dir / REPUTATION_FILE).read_text(), 100.0, wall_ms=then)
    for row in saved["peers"]:  # what first deliveries earned stands among the points now
        merit = row.pop("merit")
        row["points"] |= {"first_delivery": merit} if merit else {}
    assert json.loads(reputation.to_json(100.0, wall_ms=then)) == saved
    (banned,) = (row["peer_id"] for row in saved["peers"] if "ban_s" in row)
    assert reputation.banned(100.0) == {banned: 600.0}
    assert reputation.blocked == frozenset(saved["blocked"])
    assert all(reputation.is_protected(peer_id) for peer_id in saved["protected"])


def test_the_archive_is_exported(node_dir: Path, tmp_path: Path) -> None:
    archived = read_folder(node_dir).archived
    kept = list(read_archive(node_dir / ARCHIVE_FILE))
    assert {batch.batch_id: batch.envelope for batch in kept} == archived
    assert list(archived) == [batch.batch_id for batch in kept]
    out = tmp_path / "export"
    command = ["export", "--data-dir", str(node_dir), "--out", str(out), "--format", "jsonl"]
    assert main(command) == 0
    groups = sum(len(signed.batch.groups) for signed in map(_opened, archived.values()))
    lines = (out / "rollouts.jsonl").read_text().splitlines()
    assert len({json.loads(line)["group_id"] for line in lines}) == groups


def _opened(envelope: bytes) -> SignedBatch:
    return reopen_batch(envelope, max_bytes=MAX_BATCH_BYTES)


def test_a_judges_records_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judge_dir = _copy("judge", tmp_path)
    command = ["judge", "report", "--data-dir", str(judge_dir), "--out", str(tmp_path / "r")]
    assert main([*command, "--json"]) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out)
    envelopes = _rows(judge_dir / "judge.db", "SELECT envelope FROM records")
    assert report["records"] == len(envelopes) > 0
    [judge] = report["judges"]
    assert judge["records_refused"] == 0
    assert (judge_dir / "addresses").read_text().strip().endswith(f"/p2p/{judge['judge']}")


def test_the_checkpoint_is_loaded_and_saved_as_it_was(node_dir: Path, tmp_path: Path) -> None:
    from shoal_policy.checkpoint.saved import latest_checkpoint
    from shoal_policy.checkpoint.saving import load_checkpoint, save_checkpoint
    from shoal_policy.record.progress import RunCounters
    from shoal_settings.schema import Settings

    found = latest_checkpoint(node_dir)
    assert found.skipped == ()
    assert found.path == newest_checkpoint(node_dir)
    loaded = load_checkpoint(found.path, Settings(learning_rate=1e-3))
    progress = RunCounters.from_json(loaded.state.counters)
    kept = {key: value for key, value in loaded.state.counters.items() if key not in GONE}
    assert progress.to_json() == kept
    assert progress.groups_external_used > 0
    saved = save_checkpoint(tmp_path, loaded.policy, loaded.optimizer, loaded.state)
    files = [sorted(p.relative_to(top) for p in top.rglob("*")) for top in (found.path, saved)]
    assert files[0] == files[1]
    states = [read_json(path / "state.json") for path in (found.path, saved)]
    del states[0]["rng"]  # rounds draw from seeds of their own
    assert states[1].pop("swarm") == "", "the old one names none, and is gone on with in any"
    assert states[0] == states[1]
    weights = "model/model.safetensors"
    assert (saved / weights).read_bytes() == (found.path / weights).read_bytes()
    manifests = [read_json(path / "manifest.json") for path in (found.path, saved)]
    assert manifests[0]["format_version"] == manifests[1]["format_version"]
    assert manifests[0]["files"].keys() == manifests[1]["files"].keys()


def test_a_node_opens_it_and_is_who_it_was(tmp_path: Path) -> None:
    node_dir = _copy("node", tmp_path)
    before, told = read_folder(node_dir), read_json(node_dir / "last-status.json")
    with RunningNode(node_dir, inline_tasks=True) as running:
        status = running.view("status")
        assert trio.run(protocols_of, running.address) >= SERVED
    assert (status["peer_id"], status["swarm"]) == (told["peer_id"], told["swarm"])
    after = read_folder(node_dir)
    assert after.next_sequence >= before.next_sequence
    assert after.client_keys == before.client_keys
    assert after.consumed >= before.consumed
    assert after.archived.items() >= before.archived.items()
    assert after.known_peers >= before.known_peers
    assert (after.blocked, after.protected) == (before.blocked, before.protected)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_node_goes_on_in_it(tmp_path: Path) -> None:
    node_dir = _copy("node", tmp_path)
    before = read_folder(node_dir)
    told = read_json(node_dir / "last-status.json")
    flags = ("--model", "small", "--local", "2", "--completions", "4", "--eval-every", "0")
    with open_stage(tmp_path) as stage:
        node = stage.process(
            "node", "node", "--listen", LOOPBACK, "--no-mdns", "--rounds", "6", *flags
        ).start()
        assert node.peer_id == told["peer_id"]
        assert node.wait() == 0, node.log
        assert "Traceback" not in node.log
    after = read_folder(node_dir)
    _is_continued(before, after)
    status = read_json(node_dir / "last-status.json")
    assert status["swarm"] == told["swarm"]
    assert status["groups_external_used"] >= told["groups_external_used"] > 0
    assert status.keys() >= {key for key, value in told.items() if value is not None}
    rounds = [row.keys() for row in read_metrics(node_dir) if row["event"] == "round"]
    gone = {name for name in rounds[0] - rounds[-1] if f"`{name}`" not in CHANGELOG.read_text()}
    assert not gone, "a metric goes with a line in the changelog"
    old, new = (read_json(newest_checkpoint(path) / "state.json") for path in (OLD, node_dir))
    assert old.keys() - new.keys() == {"rng"}, "random states, which no round draws from"


def _is_continued(before: DataFolder, after: DataFolder) -> None:
    assert after.identity == before.identity
    assert list(after.rounds) == list(range(1, 7))
    assert after.checkpoint_round == 6
    assert after.next_sequence > before.next_sequence
    assert after.client_keys.items() > before.client_keys.items()
    assert after.consumed >= before.consumed
    assert after.archived.items() > before.archived.items()
    assert after.known_peers == before.known_peers
    assert (after.blocked, after.protected) == (before.blocked, before.protected)
    for name in ("groups_local_used", "tokens_generated", "num_tokens"):
        assert after.counters[name] > before.counters[name], name
