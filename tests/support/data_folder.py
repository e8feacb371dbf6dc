"""What is in a node's data directory, read as a stranger would: by SQL and JSON alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """A data directory at one moment."""

    identity: bytes
    next_sequence: int
    client_keys: Mapping[bytes, tuple[int, bytes]]
    """Sequence and batch id by the key under which the batch was handed over."""
    unsent: Mapping[bytes, bytes]
    """Own envelopes that wait to be sent, by batch id."""
    consumed: frozenset[bytes]
    """Ids of the groups that node or checkpoint call consumed."""
    archived: Mapping[bytes, bytes]
    """Envelopes by batch id."""
    known_peers: frozenset[str]
    blocked: frozenset[str]
    protected: frozenset[str]
    rounds: Sequence[int]
    """Rounds told in ``metrics.jsonl``, in order."""
    checkpoint_round: int
    counters: Mapping[str, Any]
    """Of the newest checkpoint."""


def read_folder(path: Path) -> DataFolder:
    """Read the data directory of a node that does not run."""
    checkpoint = newest_checkpoint(path)
    state = json.loads((checkpoint / "state.json").read_text())
    book = read_json(path / "peers.json") or {"peers": []}
    reputation = read_json(path / "reputation.json") or {"blocked": [], "protected": []}
    with closing(sqlite3.connect(path / "node.db")) as db:
        meta = dict(db.execute("SELECT key, value FROM meta"))
        keys = db.execute("SELECT client_key, sequence, batch_id FROM client_keys").fetchall()
        unsent = db.execute(
            "SELECT batch_id, envelope FROM batches WHERE own = 1 AND sent_ms IS NULL"
        ).fetchall()
        consumed = {group_id for (group_id,) in db.execute("SELECT group_id FROM consumed")}
    return DataFolder(
        identity=(path / "identity.key").read_bytes(),
        next_sequence=meta["next_sequence"],
        client_keys={key: (sequence, batch_id) for key, sequence, batch_id in keys},
        unsent=dict(unsent),
        consumed=frozenset(consumed | {bytes.fromhex(one) for one in state["consumed_ids"]}),
        archived=read_archive_file(path),
        known_peers=frozenset(row["peer_id"] for row in book["peers"]),
        blocked=frozenset(reputation["blocked"]),
        protected=frozenset(reputation["protected"]),
        rounds=[row["round"] for row in read_metrics(path) if row["event"] == "round"],
        checkpoint_round=state["round"],
        counters=state["counters"],
    )


def read_archive_file(path: Path, *, own: bool | None = None) -> dict[bytes, bytes]:
    """Return what is archived, own or others' or all: envelopes by batch id."""
    with closing(sqlite3.connect(path / "archive.db")) as db:
        rows = db.execute("SELECT batch_id, envelope, own FROM batches ORDER BY position")
        return {name: envelope for name, envelope, is_own in rows if own in (None, bool(is_own))}


def newest_checkpoint(path: Path) -> Path:
    """Return the folder of the newest checkpoint."""
    found = [p for p in (path / "checkpoints").glob("round-*") if ".tmp" not in p.name]
    return max(found, key=lambda p: [int(part) for part in p.name[len("round-") :].split(".")])


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of ``metrics.jsonl``; a kill may leave a torn last one."""
    lines = (path / "metrics.jsonl").read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; None where there is none."""
    return json.loads(path.read_text()) if path.exists() else None
