"""A real judge, a real node and a trainer's questions on loopback; and judges that are no good."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused
from shoal_p2p.ipc.judge_link import JudgeLink
from shoal_p2p.judge.peer import JudgePeer
from shoal_p2p.judge.store import JUDGE_FILE, read_records
from shoal_p2p.node import Node
from shoal_wire.judge import (
    JUDGE_PROTOCOL,
    MAX_JUDGE_REQUEST_BYTES,
    decode_request,
    encode_reply,
    open_record,
    seal_record,
)
from shoal_wire.judge_messages import Challenge, ChallengeRequest, Mode, SealedRecord
from shoal_wire.types import FinishReason
from tests.support import factories as make
from tests.support.nodes import open_test_host
from tests.support.peers import address_of, open_peer
from tests.wire.test_judge_protocol import RECORD

PATIENCE_S = 40.0


async def eventually(client: NodeClient, body: m.Body, kind: type) -> Any:
    """Ask as the trainer does, until the reply is no longer "try again"."""
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                return await trio.to_thread.run_sync(client.call, body, kind)
            except NodeRefused as refused:
                if not refused.retryable:
                    raise
                await trio.sleep(0.01)


def answer(challenge: m.JudgeChallenge, *, round: int = 10, **changes: Any) -> m.JudgeAnswer:
    made = m.JudgeAnswer(
        challenge_id=challenge.challenge_id,
        text="nothing",
        finish_reason=FinishReason.STOP,
        round=round,
        policy_version=round,
        model_name="tiny",
        uses_external_groups=True,
    )
    return replace(made, **changes)


async def test_a_trainer_is_judged_through_its_node(tmp_path: Path) -> None:
    async with open_peer(JudgePeer, tmp_path / "judge") as judge:
        address = address_of(judge)
        async with open_peer(Node, tmp_path / "node", judge=address) as node:
            client = NodeClient(tmp_path / "node" / SOCKET_NAME, timeout_seconds=20.0)
            challenge = await eventually(client, m.JudgeAsk(), m.JudgeChallenge)
            assert challenge == await eventually(client, m.JudgeAsk(), m.JudgeChallenge)
            task = judge.judge.desk.open_for(node.member.peer_id, 0.0).task
            [item] = make.real_worker().items([task])
            given = answer(challenge, text=item.answer, uses_external_groups=False)
            score = await eventually(client, given, m.JudgeScore)
            assert score == m.JudgeScore(score=1.0, number=1, family=task.family)
            # Each request gets the score.
            assert score == await eventually(client, given, m.JudgeScore)
            other = await eventually(client, m.JudgeAsk(), m.JudgeChallenge)
            with pytest.raises(NodeRefused, match="no such answer"):
                await eventually(client, given, m.JudgeScore)
            await eventually(client, answer(other), m.JudgeScore)
            status = await node.views.status({})
            assert status.judge.judged == 2
            assert (status.judge.score, status.judge.mean_score) == (0.0, 0.5)
            client.close()
        records = [
            open_record(raw, judge=judge.member.peer_id)
            for raw in read_records(tmp_path / "judge" / JUDGE_FILE)
        ]
        assert [(r.peer_id, r.mode, r.score) for r in records] == [
            (node.member.peer_id, Mode.SILO, 1.0),
            (node.member.peer_id, Mode.SWARM, 0.0),
        ]


async def test_a_judge_that_is_away_is_named_once_and_found_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shoal_p2p.ipc.judge_link")
    async with open_peer(JudgePeer, tmp_path / "judge") as judge:
        address = address_of(judge)
    async with open_peer(Node, tmp_path / "node", judge=address) as node:
        client = NodeClient(tmp_path / "node" / SOCKET_NAME, timeout_seconds=20.0)
        for _ in range(2):
            with pytest.raises(NodeRefused, match="cannot connect"):
                await eventually(client, m.JudgeAsk(), m.JudgeChallenge)
            node.judge._retry_at = 0.0  # as if the pause were over
        assert caplog.text.count("no score from the judge") == 1
        async with open_peer(JudgePeer, tmp_path / "judge"):
            node.judge._retry_at = 0.0
            await eventually(client, m.JudgeAsk(), m.JudgeChallenge)
        assert "answers again" in caplog.text
        client.close()


SWARM = make.swarm()
LIAR = make.fresh_identity()
QUESTION = Challenge(
    challenge_id=b"i" * 16, family=make.GCD.name, question="gcd?", answer_within_ms=60_000
)


def sealed_by(identity: Any, **changes: Any) -> bytes:
    record = replace(RECORD, swarm_digest=SWARM.digest, **changes)
    return encode_reply(
        SealedRecord(
            envelope=seal_record(record, public_key=identity.public_key_bytes, sign=identity.sign)
        )
    )


STRANGE = replace(QUESTION, family="unheard of")


@pytest.mark.parametrize(
    ("offered", "reply", "why"),
    [
        (STRANGE, None, "answered with a Challenge"),
        (QUESTION, lambda me: b"\xff" * 9, "does not parse"),
        (QUESTION, lambda me: encode_reply(QUESTION), "answered with a Challenge"),
        (QUESTION, lambda me: sealed_by(LIAR), "does not belong to the answer"),
        (QUESTION, lambda me: sealed_by(make.fresh_identity(), peer_id=me), "signed by"),
        (
            QUESTION,
            lambda me: sealed_by(LIAR, peer_id=me, score=1.0),
            "does not belong to the answer",
        ),
    ],
    ids=[
        *("no family of the swarm", "nonsense", "another question", "another's record"),
        *("forged", "another answer's"),
    ],
)
async def test_a_judge_that_lies_is_not_believed(
    offered: Challenge, reply: Callable[[Any], bytes], why: str
) -> None:
    async with open_test_host(identity=LIAR) as liar, open_test_host() as mine:

        async def lie(_peer: Any, raw: bytes) -> bytes:
            is_question = isinstance(decode_request(raw), ChallengeRequest)
            return encode_reply(offered) if is_question else reply(mine.peer_id)

        liar.set_request_handler(JUDGE_PROTOCOL, lie, max_request_bytes=MAX_JUDGE_REQUEST_BYTES)
        link = JudgeLink(host=mine, manifest=SWARM, address=liar.listen_addrs()[0])
        async with trio.open_nursery() as nursery:
            await nursery.start(link.run)
            found = await _settled(link.ask)
            if offered is QUESTION:
                given = answer(found)
                found = await _settled(lambda: link.answer(given))
            assert isinstance(found, m.Failure)
            assert why in found.reason
            assert link.view().judged == 0
            nursery.cancel_scope.cancel()


async def _settled(call: Callable[[], Any]) -> Any:
    with trio.fail_after(PATIENCE_S):
        while True:
            found = call()
            if not (isinstance(found, m.Failure) and found.retryable):
                return found
            await trio.sleep(0.01)
