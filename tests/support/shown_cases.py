"""Answers of a node for which it is on record what `shoal debug` prints for a person."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
NARROW, WIDE = 100, 200
"""A terminal's columns; from 140 on tables show whole peer ids."""
VIEWS = (
    *("status", "id", "peers", "scores", "mesh", "topics", "buffer", "contributions", "fetch"),
    *("doctor", "rollouts"),
)
SAID = (
    *("", "--help", "nonsense", "tasks", "tasks --json", "tasks gcd_easy --seed 1"),
    *("debug status --data-dir nobody", "debug status --last --data-dir nobody"),
    *("node --rounds many", "node --bootstrap nonsense", "node --bootstrap /ip4/192.0.2.1/tcp/1"),
    *("node --task-file none.toml --data-dir mine", "node --swarm-key none.key --data-dir mine"),
    *("bootstrap --config none.toml", "swarm --nodes 0", "trainer --log nonsense"),
    *("judge --shards 0", "judge report --data-dir nobody", "experiment paper --rounds 0"),
    *("publish", "publish none.jsonl --data-dir nobody", "answer --data-dir nobody"),
    "export --data-dir nobody --out new",
)
"""Commands that need nobody, one after another in an empty folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A view of one node, seen on one terminal."""

    arguments: tuple[str, ...]
    answers: Json
    """By the name of the view."""
    columns: int = NARROW


def cases(answers: Json) -> Iterator[Case]:
    """Yield all cases, made from what a node has answered."""
    for view in VIEWS:
        yield Case(arguments=(view,), answers={view: answers[view]})
    for view in ("peers", "scores", "buffer", "contributions", "status"):
        yield Case(arguments=(view,), answers={view: answers[view]}, columns=WIDE)
    for role in ("bootstrap", "judge"):
        yield Case(arguments=("status",), answers={"status": answers[f"status of a {role}"]})
    for view, made in _strange(answers):
        yield Case(arguments=(view,), answers={view: made})
    yield from _orders(answers["scores"])
    yield from _pings(answers["ping"])


def _strange(answers: Json) -> Iterator[tuple[str, Json]]:
    """What a good day does not bring about."""
    yield "status", _status_of_a_bad_day(answers["status"])
    judged = copy.deepcopy(answers["status"])
    judged["judge"] |= {"judged": 0, "score": None, "error": "the judge is away"}
    yield "status", judged
    yield "peers", {**answers["peers"], "peers": []}
    yield "peers", _peers_of_a_bad_day(answers["peers"])
    yield "scores", {**answers["scores"], "scores": [], "refused": {}}
    yield "scores", _scores_of_a_bad_day(answers["scores"])
    yield "mesh", {**answers["mesh"], "topics": {"/shoal/1/aa/rollouts/0": _nobody()}}
    yield "topics", {**answers["topics"], "shards": 8, "subscribed": [0, 3]}
    yield "buffer", {**answers["buffer"], "publishers": []}
    yield "contributions", _no_contributions(answers["contributions"])
    yield (
        "fetch",
        {
            **answers["fetch"],
            "failures": {"timeout": 2, "not_held": 1},
            "refused": {"busy": 4},
            "served": {"recent": 1, "chunk": 12},
            "bytes_out": 5 << 20,
        },
    )
    yield "doctor", _bad_findings(answers["doctor"])
    yield "rollouts", {**answers["rollouts"], "rollouts": []}
    yield "rollouts", _rollouts_of_a_bad_day(answers["rollouts"])


def _nobody() -> Json:
    return {"mesh": [], "peers": []}


def _status_of_a_bad_day(status: Json) -> Json:
    made = copy.deepcopy(status)
    made |= {"solo": True, "peers": 0, "uptime_s": 3725.0}
    made["outbox"]["unsent"] = 7
    made["buffer"]["dropped"] = {"stale": 3, "quota": 1}
    made["verdicts"] = {
        "accept": 12,
        "ignore": {"duplicate": 2, "too_old": 1},
        "reject": {"bad_signature": 3},
    }
    made["trainer"] |= {"state": "broken", "pid": None, "restarts": 5, "reward_local": None}
    return made


def _peers_of_a_bad_day(peers: Json) -> Json:
    made = copy.deepcopy(peers)
    made["peers"][0] |= {"latency_ms": None, "agent": "", "score": -12.5}
    target = made["targets"][0]
    target |= {"state": "waiting", "attempts": 3, "next_try_s": 4.0}
    target["last_error"] = f"cannot connect to {target['peer_id']}: refused [by] it " + "x" * 80
    return made


def _scores_of_a_bad_day(scores: Json) -> Json:
    made = copy.deepcopy(scores)
    made["scores"][0] |= {
        "score": -72.0,
        "points": {"signed_heavy": -60.0, "flood": -12.0},
        "banned_s": 599.0,
        "bans": 1,
    }
    made["refused"] = {"rate": 3, "blocked": 1}
    return made


def _no_contributions(contributions: Json) -> Json:
    own = {**contributions["own"], "contributed": 0, "ratio": None}
    return {**contributions, "own": own, "peers": [], "silent": 2}


def _bad_findings(doctor: Json) -> Json:
    made = copy.deepcopy(doctor)
    made["state"] = "bad"
    made["findings"][0] |= {"state": "bad", "says": "nobody [is] here", "do": "give a bootstrap"}
    made["findings"][1] |= {"state": "warn", "says": "it is slow", "do": "wait"}
    return made


def _rollouts_of_a_bad_day(rollouts: Json) -> Json:
    made = copy.deepcopy(rollouts)
    row = made["rollouts"][0]
    row |= {"question": None, "reward": None, "own": False, "age_s": 7300.0}
    row["completions"][0] |= {"finish_reason": "length", "reward": None, "text": "[b]a\nb" * 30}
    return made


def _orders(scores: Json) -> Iterator[Case]:
    row = scores["scores"][0]
    shown = {"scores": {**scores, "scores": [row]}}
    for order in (("block",), ("unblock",), ("protect",), ("protect", "--off")):
        name, *flags = order
        yield Case(arguments=(name, row["peer_id"], *flags), answers=shown)


def _pings(ping: Json) -> Iterator[Case]:
    arguments = ("ping", str(ping["peer_id"]), "--count", "2", "--interval", "0")
    yield Case(arguments=arguments, answers={"ping": ping})
    unanswered = {**ping, "ms": None, "error": "cannot connect: refused"}
    yield Case(arguments=arguments, answers={"ping": unanswered})
