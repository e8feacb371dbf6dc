"""What is shown of a node: the seven questions, whatever it has answered."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.view.build import build
from shoal.view.folder_follower import LatestAnswers
from shoal.view.model import Pace, ShownPeer
from shoal.view.run import RunFile
from shoal_base.visible import visible
from shoal_ipc.answers.form import to_json
from shoal_ipc.answers.held_out import evaluation
from shoal_ipc.answers.peer import Refusals
from shoal_settings.loader import Loaded
from shoal_settings.schema import Settings
from shoal_settings.started_with import save_started_with
from shoal_wire.invite import decode_invite
from tests.shoal.view.node_answers import (
    AT_UNIX,
    FOE,
    FRIEND,
    GIVEN,
    LEDGER,
    ME,
    STATUS,
    answers,
    shown,
    typed,
)

HOSTILE = "\x1b[2J\u202eevil\u200b\n"


def test_a_node_that_learns() -> None:
    one = shown()
    assert (one.kind, one.name, one.peer_id, one.short) == ("node", "node", ME, ME[-10:])
    assert one.health.state == "warn"
    assert one.health.message == "Learning with 1 other node. disk: 1 GiB free"
    assert one.health.remedy == "make room"
    assert "generating, 3 of 8" in one.health.phase
    first, latest = one.learning.held_out_initial, one.learning.held_out
    assert first is not None and (first.round, first.pass_at_1) == (0, 0.125)
    assert latest is not None and (latest.round, latest.pass_at_1) == (20, 0.25)
    assert [row.peer_id for row in one.publishers] == [ME, FRIEND, FOE]
    assert [row.reputation for row in one.publishers] == ["me", "fine", "banned"]
    assert one.publishers[1].relayed
    assert one.publishers[1].signal == 61.0
    in_time, from_others = (
        "In the last 1 h 0 min, 61%",
        "of the training signal came from other nodes",
    )
    assert one.benefit.message == f"{in_time} {from_others} (8.0 KB/s received)"
    assert len(one.rollouts[0].completions) == 2
    assert one.refused.counts[0].count == 2
    assert [(row.name, row.state, row.nodes) for row in one.added_tasks] == [("sums", "offered", 1)]
    assert one.next_steps


def test_a_share_is_rounded_as_the_page_rounds_it() -> None:
    one = shown(ledger={"last_hour": {"window_s": 60, "external_signal_share": 0.465}})
    assert ", 47% of the" in one.benefit.message


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"ledger": None},
            "Over the whole run 833 groups of other nodes were trained on, none recently",
        ),
        (
            {"ledger": {**LEDGER, "last_hour": {"window_s": 0, "external_signal_share": None}}},
            "Over the whole run 833 groups of other nodes were trained on, none recently",
        ),
        ({"ledger": {}, "status": {}}, "No group of another node was trained on before it stopped"),
        (
            {"ledger": None, "status": {}},
            "This folder has no record of training on external groups",
        ),
        ({}, "In the 1 h 0 min until 2027-01-1"),
        ({"ledger": {**LEDGER, "at_ms": 1e300}}, "In the 1 h 0 min before it stopped, 61% of"),
    ],
)
def test_a_stopped_node_is_shown_with_its_last_state(given: Any, says: str) -> None:
    status = {**STATUS, "groups_external_used": 833}
    one = shown(**{"status": status, **given}, down_since_unix=AT_UNIX - 60)
    assert one.benefit.message.startswith(says), one.benefit.message
    assert "last " not in one.benefit.message


def test_its_last_rounds_are_those_on_disk_where_it_was_killed() -> None:
    """Its status is of an earlier end."""
    run = RunFile(round=50, reward_local=0.405)
    one = shown(run=run, down_since_unix=AT_UNIX)
    assert (one.learning.round, one.learning.reward_local) == (50, 0.405)
    assert shown(run=run).learning.round == STATUS["round"]


def test_its_figures_are_of_the_same_rounds_as_its_answer() -> None:
    run = RunFile(round=STATUS["round"] + 1, reward_local=0.405, answer="Yes: own reward rose")
    trainer = {**STATUS["trainer"], "held_out": None}
    one = shown(run=run, status={**STATUS, "trainer": trainer}).learning
    assert (one.answer, one.reward_local, one.round) == (run.answer, 0.405, run.round)


def test_held_out_questions_answer_before_own_reward() -> None:
    """From the second evaluation on, which was at round 25; own reward takes 40 rounds."""
    rose = {"round": 25, "pass_at_1": 0.5625, "num_items": 192, "low": 0.49, "high": 0.63}
    first = {"round": 0, "pass_at_1": 0.104, "num_items": 192, "low": 0.07, "high": 0.16}
    trainer = {**STATUS["trainer"], "held_out": rose, "held_out_initial": first}
    status = {**STATUS, "round": 28, "trainer": trainer}
    early = RunFile(round=28, held_out=evaluation(25, 0.5625, 192))
    late = replace(early, answer="No: own reward fell")
    for run in (early, late):
        found = shown(run=run, status=status).learning
        assert found.answer.startswith("Yes: right answers rose from 0.10 to 0.56 of 192")


def test_its_latest_evaluation_is_that_on_disk_where_it_was_killed() -> None:
    run = RunFile(round=50, held_out=evaluation(50, 0.5, 64))
    found = shown(run=run, down_since_unix=AT_UNIX).learning
    assert found.held_out == run.held_out


def test_its_json_holds_all_of_it_and_a_version() -> None:
    found = to_json(shown())
    assert found["schema_version"] == 1
    assert json.loads(json.dumps(found)) == found
    assert set(found) == {*ShownPeer.__dataclass_fields__}


@pytest.mark.parametrize("role", ["bootstrap", "judge"])
def test_a_peer_without_a_trainer(role: str) -> None:
    bare = {key: value for key, value in STATUS.items() if key not in ("trainer", "round")}
    one = build(typed(status={**bare, "role": role}), data_dir="/somewhere/it", at_unix=AT_UNIX)
    assert one.kind == role
    assert one.health.state == "ok"
    assert "2 connected" in one.health.message
    assert one.publishers == ()
    assert one.connections == () and one.join_addresses == () and one.invitation == ""
    way = {"address": f"/ip4/192.0.2.7/tcp/4001/p2p/{ME}", "via": "self", "scope": "public"}
    typed_view = typed(
        status={**bare, "role": role},
        peers={"peers": [{"peer_id": FRIEND, "connected_s": 5.0}]},
        doctor={"swarm": {"name": "s", "digest": "00" * 32}, "facts": {"addresses": [way]}},
    )
    two = build(typed_view, data_dir="/somewhere/it", at_unix=AT_UNIX)
    assert [row.peer_id for row in two.connections] == [FRIEND]
    assert two.join_addresses == (way["address"],)
    assert decode_invite(two.invitation).addresses == (way["address"],)
    assert one.refused == Refusals()


def test_a_node_that_is_down_shows_its_last_numbers() -> None:
    one = shown(down_since_unix=AT_UNIX - 180)
    assert one.health.state == "down"
    assert one.health.message == "no node answers here (for 3 min 0 s)"
    assert one.health.down_since_unix == AT_UNIX - 180
    assert one.learning.reward_local == 0.36
    assert one.next_steps[0].command == "shoal status --last --data-dir /somewhere/node"


@pytest.mark.parametrize("kind", ["node", "swarm"])
def test_what_is_down_is_started_again_as_it_was_or_not_at_all(
    kind: Literal["node", "swarm"], tmp_path: Path
) -> None:
    """No advice starts an untrained peer in the folder of another."""
    (folder := tmp_path / "node-1").mkdir()
    place = folder if kind == "node" else tmp_path
    settings = Settings(data_dir=place, seed=7)
    origins = dict.fromkeys(Settings.model_fields, "default") | {"seed": "flag"}
    down = answers(down_since_unix=AT_UNIX - 180)

    def commands() -> list[str]:
        found = build(down, data_dir=str(folder), at_unix=AT_UNIX).next_steps
        return [one.command for one in found]

    assert not [one for one in commands() if one.startswith(("shoal node", "shoal swarm"))]
    save_started_with(Loaded(settings=settings, origins=origins), place, kind, kind)
    assert commands()[0] == f"shoal {kind} --seed=7 --data-dir {place}"


def test_a_folder_where_no_node_ever_was() -> None:
    one = build(typed(down_since_unix=0.0), data_dir="/nowhere", at_unix=AT_UNIX)
    assert one.health.state == "down"
    assert one.health.down_since_unix is None
    assert one.publishers == ()


def test_what_stands_first_is_the_worst() -> None:
    findings = [
        {"check": "disk", "state": "warn", "message": "little", "remedy": "make room"},
        {"check": "trainer", "state": "bad", "message": "broken: no model", "remedy": "fix that"},
        {"check": "learning", "state": "bad", "message": "nothing earned", "remedy": "other tasks"},
    ]
    one = shown(doctor={"findings": findings})
    assert one.health.state == "bad"
    assert one.health.message.endswith("trainer: broken: no model")


def _hostile(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hostile(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_hostile(one) for one in value]
    return value + HOSTILE if isinstance(value, str) else value


def test_no_text_of_it_acts() -> None:
    """Strangers name their models, and errors quote them."""
    hostile = {view: _hostile(one) for view, one in GIVEN.items()}
    found = to_json(build(typed(**hostile), data_dir="/a/\x1bb", at_unix=AT_UNIX))
    texts = list(_texts(found))
    assert any("evil" in one for one in texts)
    for one in texts:
        # But for the command to copy, which names a folder of the user's own.
        assert one == visible(one) or one.startswith("shoal "), one


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers()),
    st.dictionaries(st.text(), st.integers()),
)  # fmt: skip


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    return [at, *(place for key in keys for place in _places(value[key], (*at, key)))]


PLACES = [place for place in _places(GIVEN) if place]


@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), JUNK), max_size=6))
def test_whatever_another_version_answers_is_shown(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    """Keys of another type, missing ones, rows that are none."""
    changed = copy.deepcopy(GIVEN)
    for place, value in changes:
        at: Any = changed
        for key in place[:-1]:
            at = at[key] if isinstance(at, dict) and key in at else None
        if isinstance(at, dict):
            at[place[-1]] = value
    views = {view: one if isinstance(one, dict) else None for view, one in changed.items()}
    found = to_json(build(typed(**views), data_dir="/a", at_unix=AT_UNIX))
    json.dumps(found, allow_nan=False)


def test_of_many_publishers_the_ones_that_count_are_shown() -> None:
    rows = [{"peer_id": f"P{n}", "received": n} for n in range(1000)]
    one = shown(buffer={"publishers": rows})
    assert len(one.publishers) == 256
    assert one.publishers[0].is_local


def test_a_stopped_bootstrap_is_no_node(tmp_path: Path) -> None:
    origins = dict.fromkeys(Settings.model_fields, "default")
    loaded = Loaded(settings=Settings(data_dir=tmp_path), origins=origins)
    save_started_with(loaded, tmp_path, "bootstrap", "bootstrap")
    assert build(LatestAnswers(down_since_unix=1.0), data_dir=str(tmp_path), at_unix=2.0).kind == (
        "bootstrap"
    )


def test_the_pace_counts_the_wait_between_rounds_and_the_rounds_that_are_left(
    tmp_path: Path,
) -> None:
    settings = Settings(data_dir=tmp_path, rounds=50, round_seconds=2.0)
    origins = dict.fromkeys(Settings.model_fields, "flag")
    save_started_with(Loaded(settings=settings, origins=origins), tmp_path, "node", "node")
    run = RunFile(round=20, seconds_per_round=0.5, tokens_per_round=100.0)
    one = build(answers(run=run), data_dir=str(tmp_path), at_unix=AT_UNIX)
    assert one.pace == Pace(rounds_per_minute=30.0, tokens_per_second=50.0, remaining_s=60.0)
    assert one.settings["rounds"] == "50"
    down = build(answers(run=run, down_since_unix=1.0), data_dir=str(tmp_path), at_unix=AT_UNIX)
    assert down.pace == Pace()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"scope": "loopback"}, ["this machine alone"]),
        ({"scope": "private"}, ["this network alone"]),
        ({"scope": "public"}, []),
        ({"scope": "public", "key": {"file": "k"}}, ["lacks its key"]),
        ({"scope": "loopback", "key": {"file": "k"}, "allowed_peers": 2}, ["this machine", "key"]),
    ],
)
def test_an_invitation_says_what_it_lacks(facts: dict[str, Any], words: list[str]) -> None:
    way = {"address": f"/ip4/1.2.3.4/tcp/1/p2p/{FRIEND}", "via": "self", "scope": facts["scope"]}
    seen = {**facts, "addresses": [way]}
    one = shown(doctor={"swarm": {"name": "s", "digest": "00" * 32}, "facts": seen})
    assert len(one.invitation_lacks) == len(facts) - 1 + (facts["scope"] != "public")
    for word in words:
        assert any(word in lack for lack in one.invitation_lacks)
