"""What a node answers that learns with one other, is refused by a second, and refuses a third."""

from __future__ import annotations

from typing import Any

from shoal.view.build import build
from shoal.view.folder_follower import LatestAnswers
from shoal.view.model import NodeView, ShownPeer
from shoal.view.run import RunFile
from shoal_ipc import messages as m
from shoal_ipc.answers.form import read
from shoal_ipc.answers.held_out import evaluation
from shoal_ipc.answers.views import VIEWS
from shoal_wire.types import GroupId, PeerId

ME = "12D3KooWJvLVS1xjT31deqxHxz4bhhnYacJUn2USvGKognpgREoz"
FRIEND = "12D3KooWPwiG4QHTQCEKvGPLsNd61R9gj4hoGjLNEz4TP6TsHYo5"
FOE = "12D3KooWGGdbfyt8dnkKu9rMNfWWjC6jKVQLDKkRWvyD7WV951dY"
AT_UNIX = 1_800_000_000.0

STATUS: dict[str, Any] = {
    "schema_version": 1,
    "peer_id": ME,
    "addresses": ["/ip4/127.0.0.1/tcp/4001"],
    "swarm": {"name": "shoal", "digest": "41" * 32},
    "uptime_s": 56.8,
    "peers": 2,
    "is_isolated": False,
    "round": 23,
    "verdicts": {"accept": 90, "ignore": {"duplicate": 3}, "reject": {"bad_signature": 2}},
    "trainer": {
        "state": "training",
        "reward_local": 0.36,
        "reward_initial": 0.31,
        "phase": "generating",
        "progress": {"round": 24, "done": 3, "total": 8, "elapsed_s": 2.5, "remaining_s": 4.1},
        "held_out": {"round": 20, "pass_at_1": 0.25, "num_items": 64, "low": 0.16, "high": 0.37},
        "held_out_initial": {"round": 0, "pass_at_1": 0.125, "num_items": 64},
        "last_error": None,
        "learning": {"state": "ok", "message": "nothing wrong; own reward 0.360", "findings": []},
    },
    "judge": {"mean_score": 0.4},
    "cost": {
        "window_s": 60.0,
        "bytes_in_s": 8000.0,
        "bytes_out_s": 2000.0,
        "disk_bytes": 5_000_000,
        "processes": {
            "node": {"cpu": 0.1, "rss_bytes": 90_000_000},
            "worker": {"cpu": 0.02, "rss_bytes": 50_000_000},
            "trainer": {"cpu": 0.9, "rss_bytes": 500_000_000},
        },
    },
}
PEERS: dict[str, Any] = {
    "peers": [
        {"peer_id": FRIEND, "relayed": True, "latency_ms": 8.9},
        {"peer_id": FOE, "relayed": False, "latency_ms": None},
    ]
}
SCORES: dict[str, Any] = {
    "scores": [{"peer_id": FOE, "score": -40.0, "sampling_weight": 0.01, "banned_s": 120.0}]
}
BUFFER: dict[str, Any] = {
    "publishers": [
        {
            "peer_id": FRIEND,
            "groups": 6,
            "newest_s": 0.3,
            "received": 100,
            "sampled": 142,
            "weight": 1,
        }
    ],
}
LEDGER: dict[str, Any] = {
    "at_ms": int(AT_UNIX * 1000),
    "last_hour": {
        "window_s": 3600.0,
        "external_signal_share": 0.61,
        "groups_external": 40,
        "tokens_external": 5120,
    },
    "publishers": [
        {
            "peer_id": FRIEND,
            "is_local": False,
            "model": "tiny",
            "groups_trained": 40,
            "signal": 61.0,
            "reward": 0.5,
            "last_trained_s": 1.5,
        },
        {
            "peer_id": ME,
            "is_local": True,
            "model": "tiny",
            "groups_trained": 30,
            "signal": 39.0,
        },
    ],
    "families": [{"name": "gcd", "reward": 0.4, "reward_initial": 0.1, "groups": 12}],
}
ROLLOUTS: dict[str, Any] = {
    "rollouts": [
        {
            "number": 7,
            "group_id": "ab" * 16,
            "publisher": FRIEND,
            "is_local": False,
            "round": 22,
            "model": "tiny",
            "family": "gcd",
            "reward": 0.5,
            "used": True,
            "skip_reason": "",
            "completions": [{}, {}],
        }
    ]
}
REFUSALS: dict[str, Any] = {
    "counts": [
        {"reason": "bad_signature", "message": "it is forged", "remedy": "nothing", "count": 2}
    ],
    "recent": [
        {
            "at_ms": int(AT_UNIX * 1000) - 5000,
            "reason": "bad_signature",
            "message": "it is forged",
            "remedy": "nothing",
            "signer": FOE,
            "forwarder": FOE,
            "family": "",
            "kind": "reject",
            "count": 7,
        }
    ],
}
TASKS: dict[str, Any] = {
    "tasks": [
        {
            "name": "sums",
            "digest": "42" * 16,
            "title": "Small sums",
            "questions": 9,
            "has_code": True,
            "offered_by": [FRIEND],
            "nodes": 1,
            "reward_peers": 0.5,
            "state": "offered",
        }
    ]
}
DOCTOR: dict[str, Any] = {
    "state": "warn",
    "findings": [
        {"check": "peers", "state": "ok", "message": "2 connected", "remedy": ""},
        {"check": "disk", "state": "warn", "message": "1 GiB free", "remedy": "make room"},
    ],
}
RUN = RunFile(
    round=23,
    reward_local=0.36,
    held_out=evaluation(10, 0.125, 64),
    held_out_initial=evaluation(0, 0.125, 64),
)
GIVEN: dict[str, Any] = {
    "status": STATUS,
    "peers": PEERS,
    "scores": SCORES,
    "buffer": BUFFER,
    "doctor": DOCTOR,
    "rollouts": ROLLOUTS,
    "ledger": LEDGER,
    "refusals": REFUSALS,
    "tasks": TASKS,
}
"""By the view: what the node answers, as JSON values."""


def outcome(publisher: str, signal: float = 1.0) -> m.GroupOutcome:
    """Return the outcome of a group that was trained on; publisher "" is the node itself."""
    return m.GroupOutcome(
        group_id=GroupId(b"g"),
        publisher=PeerId(publisher),
        signal=signal,
        skip_reason="",
        model="tiny",
        family="gcd",
        reward=0.5,
        tokens=10,
    )


def typed(**given: Any) -> LatestAnswers:
    """Return JSON answers as they are read; what is no view's stays."""
    return LatestAnswers(
        **{
            name: read(VIEWS[name], value) if name in VIEWS and value is not None else value
            for name, value in given.items()
        }
    )


def answers(**other: Any) -> LatestAnswers:
    """Return the answers of a node that is up, replaced by those given."""
    return typed(**{"run": RUN, **GIVEN, **other})


def shown(**other: Any) -> ShownPeer:
    """Return what is shown of them."""
    return build(answers(**other), data_dir="/somewhere/node", at_unix=AT_UNIX)


def view(**other: Any) -> NodeView:
    """Return what is shown of them, with the answers."""
    return NodeView(shown(**other), answers(**other))
