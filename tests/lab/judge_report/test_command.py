"""A judge's report: known effects are found, none is invented, forgeries do not count."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal_lab.judge_report.records import (
    Records,
    RecordsError,
    fetch_records,
    records_in,
    verified,
)
from shoal_lab.judge_report.stats import compare, swarms_of, unanswered
from shoal_lab.significance import ALPHA
from shoal_p2p.judge.peer import JudgePeer
from shoal_p2p.judge.store import JUDGE_FILE, JudgeStore
from shoal_p2p.net.identity import Identity, load_or_create_identity
from shoal_wire.judge import seal_record
from shoal_wire.judge_messages import JudgeRecord, Mode
from tests.support import factories as make
from tests.support.hostile_text import acting_in
from tests.support.nodes import open_test_host
from tests.support.peers import address_of, open_peer
from tests.support.schemas import check
from tests.wire.test_judge_protocol import RECORD

JUDGE = make.fresh_identity()
PEERS_OF = [[make.fresh_identity().peer_id for _ in range(24)] for _ in range(8)]
"""By swarm."""
PEERS = PEERS_OF[0]


def made_up(
    pass_rate: Callable[[Mode, int], float], *, peers: int = 12, rounds: int = 200, seed: int = 1
) -> list[JudgeRecord]:
    """Records of `peers` peers an arm, each challenged every 5 rounds."""
    rng = random.Random(seed)
    found: list[JudgeRecord] = []
    for number in range(5, rounds + 1, 5):
        for place, peer in enumerate(PEERS[: 2 * peers]):
            mode = list(Mode)[place % 2]
            record = replace(
                RECORD,
                number=len(found) + 1,
                peer_id=peer,
                round=number,
                mode=mode,
                score=float(rng.random() < pass_rate(mode, number)),
                challenges=number // 5,
            )
            found.append(record)
    return found


def swarms(
    pass_rate: Callable[[Mode, int], float], *, count: int = 5, **more: int
) -> list[list[JudgeRecord]]:
    """Records of several judges, each of a swarm of its own and of silos."""
    first = more.pop("seed", 1)
    found = []
    for number in range(count):
        names = dict(zip(PEERS, PEERS_OF[number], strict=True))
        records = made_up(pass_rate, seed=first + number, **more)
        found.append([replace(one, peer_id=names[one.peer_id]) for one in records])
    return found


def late_gain(mode: Mode, number: int) -> float:
    return 0.7 if mode is Mode.SWARM and number > 100 else 0.2


def test_a_known_effect_is_found_where_it_is() -> None:
    found = compare(swarms(late_gain), model="tiny", window_rounds=10)
    assert len(found.windows) == 20
    gains = [one.arms[Mode.SWARM].mean - one.arms[Mode.SILO].mean for one in found.windows]
    assert max(gains[:10]) < 0.25 < min(gains[10:])
    assert (found.total[Mode.SWARM].swarms, found.total[Mode.SWARM].peers) == (5, 60)
    assert found.total[Mode.SWARM].answers == 5 * 12 * 40
    assert found.p is not None
    assert found.p < ALPHA
    assert abs(found.total[Mode.SILO].mean - 0.2) < 0.05


def test_windows_are_as_wide_as_the_records_ask_for() -> None:
    short = compare([made_up(late_gain, peers=1, rounds=50)], model="tiny")
    assert short.window_rounds == 5  # each peer answers every fifth round
    long = compare([made_up(late_gain, peers=1, rounds=600)], model="tiny")
    assert long.window_rounds == 15


def luck(rng: random.Random, count: int) -> list[list[JudgeRecord]]:
    """Swarms without any effect of sharing; each has a random offset that its peers share."""
    found = []
    for place in range(count):
        rates = {mode: min(0.9, max(0.1, rng.gauss(0.5, 0.15))) for mode in Mode}
        found.append(
            [
                replace(
                    RECORD,
                    number=number,
                    peer_id=peer,
                    mode=mode,
                    round=1,
                    score=float(rng.random() < rates[mode]),
                )
                for number, peer in enumerate(PEERS_OF[place][:16])
                for mode in [list(Mode)[number % 2]]
            ]
        )
    return found


def test_where_there_is_no_effect_one_report_in_twenty_finds_one() -> None:
    rng = random.Random(3)
    shown = [compare(luck(rng, 4), model="tiny", window_rounds=20).p for _ in range(300)]
    found = sum(p is not None and p < ALPHA for p in shown)
    assert 4 <= found <= 26, "15 ± three standard deviations"


def test_one_swarm_proves_nothing_however_many_its_peers() -> None:
    alone = compare([made_up(late_gain)], model="tiny")
    assert alone.p is None
    assert {arm.error for arm in alone.total.values()} == {None}
    all_or_nothing = swarms(lambda mode, _number: float(mode is Mode.SWARM), count=2, peers=2)
    two = compare(all_or_nothing, model="tiny")
    assert two.total[Mode.SWARM].mean == 1.0
    assert two.p is not None
    assert two.p > ALPHA


def test_swarms_and_silos_under_different_judges_are_compared() -> None:
    """Unpaired: three judges of swarms, three of silos."""
    apart = [
        [one for one in swarm if one.mode is list(Mode)[place % 2]]
        for place, swarm in enumerate(swarms(late_gain, count=6))
    ]
    found = compare(apart, model="tiny")
    assert found.p is not None
    assert found.p < ALPHA


def test_two_judges_of_one_swarm_are_one() -> None:
    one, other = swarms(late_gain, count=2, peers=2)
    half = len(one) // 2
    assert swarms_of([one[:half], other, one[half:]]) == [other, one]
    assert swarms_of([one, one]) == [one], "a record counts once"


def test_a_peer_that_answers_often_weighs_as_one() -> None:
    records = made_up(lambda _mode, _number: 0.0, peers=2, rounds=5)
    eager = replace(records[0], score=1.0)
    total = compare([[*records, *[eager] * 98]], model="tiny").total[eager.mode]
    assert total.answers == 100
    assert total.mean == pytest.approx(0.99 * 0.5, abs=0.01)


def test_a_round_far_above_all_others_is_left_out_and_counted() -> None:
    records = made_up(late_gain, peers=1)
    liar = replace(records[-1], number=9999, round=2**39)
    found = compare([[*records, liar]], model="tiny")
    assert found.beyond == 1
    assert found.windows[-1].last == 200
    assert compare([records], model="tiny", until=100).windows[-1].last == 100


def test_questions_left_unanswered_are_counted() -> None:
    records = made_up(late_gain, peers=1, rounds=50)
    assert unanswered(records) == 0
    assert unanswered([r for r in records if r.challenges not in (3, 4)]) == 4


def sealed(record: JudgeRecord, by: Identity = JUDGE) -> bytes:
    return seal_record(record, public_key=by.public_key_bytes, sign=by.sign)


def test_forged_damaged_and_second_records_do_not_count() -> None:
    mine = [replace(RECORD, number=number) for number in (1, 2, 4)]
    damaged = bytearray(sealed(replace(RECORD, number=5)))
    damaged[-1] ^= 1
    envelopes = [
        *map(sealed, mine),
        sealed(replace(RECORD, number=3), by=make.fresh_identity()),
        bytes(damaged),
        sealed(replace(mine[0], score=1.0)),
        sealed(mine[1]),
    ]
    found = verified(JUDGE.peer_id, envelopes)
    assert found == Records(judge=JUDGE.peer_id, good=tuple(mine), refused=3)
    assert found.missing == 1


def keep(folder: Path, records: list[JudgeRecord]) -> Identity:
    folder.mkdir(exist_ok=True)
    judge = load_or_create_identity(folder / "identity.key")
    store = JudgeStore(folder / JUDGE_FILE, judge=judge.peer_id)
    store._db.execute("PRAGMA synchronous = OFF")
    for record in records:
        store.add(record.peer_id, lambda number, r=record: sealed(replace(r, number=number), judge))
    store.close()
    return judge


async def test_anybody_reads_all_records_from_the_judge(tmp_path: Path) -> None:
    records = made_up(late_gain, rounds=70)  # 336: more than a page
    keep(tmp_path / "judge", records)
    async with open_peer(JudgePeer, tmp_path / "judge") as judge:
        address = address_of(judge)
        assert await fetch_records(address) == records_in(tmp_path / "judge")
        assert (await fetch_records(address)).good == tuple(records)
    with pytest.raises(RecordsError, match="cannot connect"):
        await fetch_records(address)
    async with open_test_host() as no_judge:
        with pytest.raises(RecordsError, match="unsupported"):
            await fetch_records(no_judge.listen_addrs()[0])
    with pytest.raises(RecordsError, match="not a judge's address"):
        await fetch_records("/ip4/127.0.0.1/tcp/1")


@pytest.mark.slow
def test_the_command_writes_table_figures_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "[/bold]$\\frac{$ \u3164\ufe0f\u05d0" + "\u0301" * 9
    out = tmp_path / "report"
    command = ["judge", "report", "--out", str(out), "--window", "30"]
    judges = []
    for number, records in enumerate(swarms(late_gain, count=4, rounds=150)):
        folder = tmp_path / f"judge-{number}"
        judges.append(keep(folder, [replace(r, model_name=name) for r in records]).peer_id)
        command += ["--data-dir", str(folder)]
    assert main([*command, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    check("judge report", report)
    assert report == json.loads((out / "report.json").read_text())
    assert [one["judge"] for one in report["judges"]] == judges
    assert {(one["records"], one["records_refused"]) for one in report["judges"]} == {(720, 0)}
    assert (report["swarms"], report["records"]) == (4, 2880)
    [model] = report["models"]
    assert model["windows"][-1]["to_round"] == 150
    assert model["p"] < ALPHA
    assert (out / "judge.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "judge.svg").read_text()
    assert not acting_in((out / "judge.svg").read_text()) - {"\n"}
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert shown.count("720 records of judge") == 4
    assert "swarm" in shown
    assert "[/bold]$" in shown
    assert not acting_in(shown) - {"\n"}


def test_one_swarm_has_no_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path / "judge", list(made_up(late_gain, peers=3, rounds=60)))
    flags = ["--data-dir", str(tmp_path / "judge"), "--out", str(tmp_path / "report")]
    assert main(["judge", "report", *flags]) == 0
    shown = capsys.readouterr().out
    assert shown.count("–") == 2
    assert "one swarm proves nothing" in shown
    assert "0.000" not in shown


@pytest.mark.parametrize(
    ("flags", "code", "line"),
    [
        (["--data-dir", "nowhere"], 3, "no judge has been in nowhere"),
        (["--data-dir", 300 * "x"], 1, 300 * "x"),
        (["--window", "0"], 2, "--window must be 1 or more"),
        (["--from", "nonsense"], 1, "not a judge's address"),
        (["--from", "/ip4/127.0.0.1/tcp/1", "--swarm-key", "none.key"], 2, "none.key"),
    ],
)
def test_what_cannot_be_reported_is_a_line(
    flags: list[str],
    code: int,
    line: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["judge", "report", *flags]) == code
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_a_judge_without_records_yet_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path / "judge", [])
    assert main(["judge", "report", "--data-dir", str(tmp_path / "judge")]) == 1
    assert "no records to report on" in capsys.readouterr().err
