"""The judge: one question a peer, one answer, a signed record; and what it refuses, and keeps."""

from __future__ import annotations

import hashlib
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal_p2p.fair.buckets import Rate
from shoal_p2p.judge.desk import DeskLimits, JudgeDesk, OpenChallenge
from shoal_p2p.judge.judge import Judge
from shoal_p2p.judge.store import (
    JUDGE_FILE,
    JudgeStore,
    JudgeStoreError,
    JudgeStoreLimits,
    read_records,
)
from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.families import JUDGE_SEED_MIN, TRAIN_SEED_MIN, judge_coordinates
from shoal_wire.errors import RemoteError
from shoal_wire.judge import (
    BadAnswerError,
    decode_reply,
    decode_request,
    encode_request,
    open_record,
)
from shoal_wire.judge_messages import (
    Challenge,
    ChallengeAnswer,
    ChallengeRequest,
    JudgeRecord,
    JudgeRefusal,
    JudgeRefusalReason,
    JudgeReply,
    JudgeRequest,
    Mode,
    RecordList,
    RecordQuery,
    SealedRecord,
)
from shoal_wire.limits import MAX_ROUND
from shoal_wire.types import FinishReason, PeerId
from tests.support import factories as make
from tests.wire.test_judge_protocol import ANSWER
from tests.wire.wire_strategies import hostile, values_of

ME = make.fresh_identity()
SWARM = make.swarm()
ASK = ChallengeRequest(swarm_digest=SWARM.digest)
ALICE, BOB = make.fresh_identity().peer_id, make.fresh_identity().peer_id
UNHURRIED = Rate(burst=1e6, per_second=1e6)
EASY = DeskLimits(requests_per_peer=UNHURRIED, asks_per_peer=UNHURRIED, asks_of_all=UNHURRIED)


class Bench:
    """A judge with its store and the real, sandboxed worker, asked without a network."""

    def __init__(self, folder: Path, limits: DeskLimits = EASY, worker: Any = None) -> None:
        self.store = JudgeStore(folder / JUDGE_FILE, judge=ME.peer_id)
        self.worker = worker or make.SharedWorker()
        self.judge = Judge(
            identity=ME,
            manifest=SWARM,
            worker=self.worker,
            store=self.store,
            wall_ms=lambda: make.NOW_MS,
            limits=limits,
            rng=random.Random(1),
        )

    async def say(self, request: JudgeRequest, peer: PeerId = ALICE) -> JudgeReply:
        return decode_reply(await self.judge.answer(peer, encode_request(request)))

    async def challenge(self, peer: PeerId = ALICE) -> Challenge:
        reply = await self.say(ASK, peer)
        assert isinstance(reply, Challenge), reply
        return reply

    async def record_of(self, answer: ChallengeAnswer, peer: PeerId = ALICE) -> JudgeRecord:
        reply = await self.say(answer, peer)
        assert isinstance(reply, SealedRecord), reply
        return open_record(reply.envelope, judge=ME.peer_id)

    async def record(self, text: str = "?", peer: PeerId = ALICE) -> JudgeRecord:
        return await self.record_of(answer_to(await self.challenge(peer), text), peer)


def answer_to(challenge: Challenge, text: str = "?", **changes: Any) -> ChallengeAnswer:
    return replace(ANSWER, challenge_id=challenge.challenge_id, text=text, **changes)


def refusal(reply: JudgeReply) -> JudgeRefusalReason:
    assert isinstance(reply, JudgeRefusal), reply
    return reply.reason


async def test_the_right_answer_earns_all_and_a_wrong_one_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    challenge = await bench.challenge()
    task = bench.judge.desk.open_for(ALICE, 0.0).task  # type: ignore[union-attr]
    [item] = make.real_worker().items([task])
    assert challenge.question == item.question
    assert challenge.family == task.family
    record = await bench.record_of(answer_to(challenge, item.answer or "", mode=Mode.SILO))
    assert record == JudgeRecord(
        number=1,
        peer_id=ALICE,
        round=ANSWER.round,
        policy_version=ANSWER.policy_version,
        model_name=ANSWER.model_name,
        mode=Mode.SILO,
        swarm_digest=SWARM.digest,
        family=task.family,
        config_digest=task.config_digest,
        seed=task.seed,
        index=0,
        answer_digest=hashlib.sha256((item.answer or "").encode()).digest(),  # type: ignore[arg-type]
        finish_reason=FinishReason.STOP,
        score=1.0,
        asked_ms=make.NOW_MS,
        judged_ms=make.NOW_MS,
        challenges=1,
    )
    assert (await bench.record("no answer at all")).score == 0.0
    assert (await bench.record("")).score == 0.0
    cut = await bench.challenge()
    task = bench.judge.desk.open_for(ALICE, 0.0).task  # type: ignore[union-attr]
    [item] = make.real_worker().items([task])
    late = answer_to(cut, item.answer or "", finish_reason=FinishReason.LENGTH)
    assert (await bench.record_of(late)).score == 0.0  # it never ended


async def test_no_client_chooses_its_question(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first = await bench.challenge()
    again = await bench.challenge()
    assert (again.challenge_id, again.question) == (first.challenge_id, first.question)
    assert (await bench.challenge(BOB)).challenge_id != first.challenge_id


async def test_an_answer_counts_once_and_only_from_its_judge(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    challenge = await bench.challenge()
    mine = answer_to(challenge)
    assert refusal(await bench.say(mine, BOB)) is JudgeRefusalReason.UNKNOWN_CHALLENGE
    assert isinstance(await bench.say(mine), SealedRecord)
    assert refusal(await bench.say(mine)) is JudgeRefusalReason.UNKNOWN_CHALLENGE
    assert bench.store.num_records == 1
    assert bench.judge.refused == {"unknown_challenge": 2}


async def test_late_answers_and_unanswered_challenges_show(tmp_path: Path) -> None:
    bench = Bench(tmp_path, replace(EASY, answer_seconds=1e-6))
    reply = await bench.say(answer_to(await bench.challenge()))
    assert refusal(reply) is JudgeRefusalReason.LATE
    await bench.challenge()
    bench.judge.desk.limits = EASY
    record = await bench.record()
    assert (record.number, record.challenges) == (1, 3)


async def test_what_is_not_of_its_swarm_or_its_bounds_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    other = ChallengeRequest(swarm_digest=make.swarm("another").digest)
    assert refusal(await bench.say(other)) is JudgeRefusalReason.WRONG_SWARM
    challenge = await bench.challenge()
    huge = answer_to(challenge, "x" * (SWARM.rules.max_completion_bytes + 1))
    assert refusal(await bench.say(huge)) is JudgeRefusalReason.BAD_ANSWER
    named = answer_to(challenge, model_name="a\nb")
    assert refusal(await bench.say(named)) is JudgeRefusalReason.BAD_ANSWER
    assert isinstance(await bench.say(answer_to(challenge)), SealedRecord)  # it stayed open


async def test_quotas_hold_for_each_peer_and_for_all(tmp_path: Path) -> None:
    scarce = DeskLimits(
        asks_per_peer=Rate(burst=2, per_second=1e-3),
        asks_of_all=Rate(burst=3, per_second=1e-3),
        queries_of_all=Rate(burst=1, per_second=1e-3),
    )
    bench = Bench(tmp_path, scarce)
    for _ in range(2):
        await bench.record()
    reply = await bench.say(ASK)
    assert refusal(reply) is JudgeRefusalReason.BUSY
    assert isinstance(reply, JudgeRefusal)
    assert 0 < reply.retry_after_ms <= 60_000
    await bench.record(peer=BOB)
    assert refusal(await bench.say(ASK, BOB)) is JudgeRefusalReason.BUSY
    assert isinstance(await bench.say(RecordQuery()), RecordList)
    assert refusal(await bench.say(RecordQuery())) is JudgeRefusalReason.BUSY


async def test_a_flood_of_anything_is_put_off_unread(tmp_path: Path) -> None:
    bench = Bench(tmp_path, replace(EASY, requests_per_peer=Rate(burst=3, per_second=1e-3)))
    for _ in range(3):
        with pytest.raises(RemoteError):
            await bench.judge.answer(ALICE, b"\xff" * 9)
    reply = decode_reply(await bench.judge.answer(ALICE, b"\xff" * 9))
    assert refusal(reply) is JudgeRefusalReason.BUSY
    await bench.challenge(BOB)


async def test_a_worker_that_is_away_costs_the_peer_nothing(tmp_path: Path) -> None:
    class Away(make.SharedWorker):
        away = False

        async def score(self, requests: Any) -> Any:
            if self.away:
                raise WorkerUnavailable("gone")
            return await super().score(requests)

    worker = Away()
    bench = Bench(tmp_path, worker=worker)
    challenge = await bench.challenge()
    worker.away = True
    assert refusal(await bench.say(answer_to(challenge))) is JudgeRefusalReason.BUSY
    worker.away = False
    assert isinstance(await bench.say(answer_to(challenge)), SealedRecord)


async def test_records_are_public_in_pages_and_survive_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for peer in (ALICE, BOB, ALICE):
        await bench.record(peer=peer)
    bench.store.close()
    again = Bench(tmp_path)
    assert again.judge.num_records == 3
    assert (await again.record()).number == 4

    async def numbers(**query: Any) -> list[int]:
        reply = await again.say(RecordQuery(**query), BOB)
        assert isinstance(reply, RecordList)
        return [open_record(raw, judge=ME.peer_id).number for raw in reply.envelopes]

    assert await numbers() == [1, 2, 3, 4]
    assert await numbers(after=1, limit=2) == [2, 3]
    assert await numbers(peer_id=BOB) == [2]
    assert await numbers(after=4) == []
    assert (await again.record()).challenges == 4  # counted over restarts
    assert len(read_records(tmp_path / JUDGE_FILE)) == 5  # while the judge has it open


answers_out_of_bounds = st.builds(
    replace,
    st.just(ANSWER),
    round=st.integers(MAX_ROUND, 2**63),
    text=st.text(st.characters(codec="utf-8"), max_size=20),
)


@given(
    st.lists(
        st.one_of(
            values_of(JudgeRequest).map(encode_request),
            answers_out_of_bounds.map(encode_request),
            hostile(encode_request(ANSWER)),
        ),
        max_size=5,
    )
)
@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_bytes_get_a_reply_or_the_stated_error(tmp_path: Path, messages: list[bytes]) -> None:
    async def main() -> None:
        bench = Bench(tmp_path)
        try:
            await bench.challenge()
            for raw in messages:
                await _is_answered_as_it_parses(bench.judge, raw)
        finally:
            bench.store.close()

    trio.run(main)


async def _is_answered_as_it_parses(judge: Judge, raw: bytes) -> None:
    try:
        decode_request(raw)
    except BadAnswerError:
        assert (
            refusal(decode_reply(await judge.answer(ALICE, raw))) is JudgeRefusalReason.BAD_ANSWER
        )
    except RemoteError:
        with pytest.raises(RemoteError):
            await judge.answer(ALICE, raw)
    else:
        decode_reply(await judge.answer(ALICE, raw))


def test_its_seeds_are_never_trained_on() -> None:
    rng = random.Random(0)
    drawn = [judge_coordinates(rng, make.SPECS) for _ in range(500)]
    assert all(JUDGE_SEED_MIN <= task.seed < TRAIN_SEED_MIN for task in drawn)
    assert {task.family for task in drawn} == {spec.name for spec in make.SPECS}
    with pytest.raises(ValueError, match="families"):
        judge_coordinates(rng, ())


def _open(number: int, *, expires_at: float) -> OpenChallenge:
    return OpenChallenge(
        challenge_id=number.to_bytes(16, "big"),
        peer_id=PeerId(f"peer {number}"),
        task=make.coordinates_at(number),
        question="?",
        asked_ms=0,
        expires_at=expires_at,
        challenges=1,
    )


def test_the_desk_is_bounded() -> None:
    desk = JudgeDesk(replace(EASY, max_open=3, answer_seconds=10.0), now=0.0)
    for number in range(3):
        desk.put(_open(number, expires_at=10.0 + number))
    assert desk.wait_to_ask(PeerId("new"), 1.0) > 0
    assert desk.wait_to_ask(PeerId("peer 1"), 1.0) == 0  # it takes its own place
    assert desk.wait_to_ask(PeerId("new"), 10.5) == 0  # the oldest is over
    assert desk.num_open == 2
    late = desk.take(PeerId("peer 1"), (1).to_bytes(16, "big"), 11.5)
    assert late is JudgeRefusalReason.LATE


def _open_store(folder: Path, **limits: int) -> closing[JudgeStore]:
    return closing(
        JudgeStore(folder / JUDGE_FILE, judge=ME.peer_id, limits=JudgeStoreLimits(**limits))
    )


def test_the_store_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    with _open_store(tmp_path, max_records=3, max_peers=2) as store:
        for number in range(1, 8):
            assert store.add(ALICE, lambda n: b"%d" % n) == b"%d" % number
            store.note_challenge(PeerId(f"peer {number}"), now_ms=number)
        assert store.records(after=0, limit=9) == [b"5", b"6", b"7"]
        assert store.note_challenge(PeerId("peer 7"), now_ms=8) == 2
        assert store.note_challenge(PeerId("peer 1"), now_ms=9) == 1  # forgotten


def test_a_record_that_fails_takes_no_number(tmp_path: Path) -> None:
    with _open_store(tmp_path) as store:
        with pytest.raises(ZeroDivisionError):
            store.add(ALICE, lambda number: bytes(number // 0))
        assert store.add(ALICE, lambda n: b"%d" % n) == b"1"


def test_another_judges_records_and_damaged_ones_are_refused_in_a_line(tmp_path: Path) -> None:
    with _open_store(tmp_path):
        pass
    with pytest.raises(JudgeStoreError, match="another judge"):
        JudgeStore(tmp_path / JUDGE_FILE, judge=ALICE)
    (tmp_path / "other.db").write_bytes(b"not a database" * 100)
    with pytest.raises(JudgeStoreError, match="not a database"):
        JudgeStore(tmp_path / "other.db", judge=ALICE)
    with pytest.raises(JudgeStoreError, match="no judge"):
        read_records(tmp_path / "nothing" / JUDGE_FILE)
