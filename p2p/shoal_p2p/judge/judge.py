"""Serves a judge's requests: samples a question, scores the one answer, stores the record.

Text from the network is scored in the sandboxed task worker and is looked at nowhere else.
"""

from __future__ import annotations

import hashlib
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from shoal_base.waits import RETRY_S
from shoal_p2p.judge.desk import DeskLimits, JudgeDesk, OpenChallenge
from shoal_p2p.judge.store import JudgeStore, JudgeStoreError
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.request import RequestLimits
from shoal_tasks.errors import TaskError
from shoal_tasks.types import ScoreRequest, ScoreResult, TaskCoordinates
from shoal_wire.judge import BadAnswerError, decode_request, encode_reply, seal_record
from shoal_wire.judge_messages import (
    CHALLENGE_ID_BYTES,
    MAX_ANSWER_MS,
    MAX_QUESTION_BYTES,
    Challenge,
    ChallengeAnswer,
    ChallengeRequest,
    JudgeRecord,
    JudgeRefusal,
    JudgeRefusalReason,
    JudgeReply,
    RecordList,
    RecordQuery,
    SealedRecord,
)
from shoal_wire.limits import MAX_RETRY_MS
from shoal_wire.manifest import Manifest
from shoal_wire.types import Digest, PeerId

log = logging.getLogger(__name__)

JUDGE_LIMITS = RequestLimits(
    read_deadline_s=5.0,
    handle_deadline_s=20.0,
    write_deadline_s=10.0,
    max_concurrent=32,
    max_concurrent_per_peer=2,
)
_DRAWS = 2


class JudgeWorker(Protocol):
    """The task worker."""

    async def draw_for_judge(self, rng: random.Random) -> tuple[TaskCoordinates, str]:
        """Return a held-out task and its question; raises TaskError."""

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Return rewards, in order."""


class Judge:
    """Answers `/shoal/judge/1`."""

    def __init__(
        self,
        *,
        identity: Identity,
        manifest: Manifest,
        worker: JudgeWorker,
        store: JudgeStore,
        wall_ms: Callable[[], int],
        limits: DeskLimits | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._identity = identity
        self._manifest = manifest
        self._worker = worker
        self._store = store
        self._wall_ms = wall_ms
        self._rng = rng or random.SystemRandom()
        self._drawing: set[PeerId] = set()
        self._disk = trio.CapacityLimiter(1)
        self.desk = JudgeDesk(limits or DeskLimits(), now=trio.current_time())
        self._records_before = store.num_records
        self.judged = 0
        self.refused: dict[str, int] = {}
        """Refusals since the start, by reason."""

    @property
    def num_records(self) -> int:
        """Records made so far, over all starts."""
        return self._records_before + self.judged

    async def answer(self, peer_id: PeerId, raw: bytes) -> bytes:
        """Answer one request. Raises RemoteError, which resets the stream: not of the contract."""
        if (wait := self.desk.wait_to_request(peer_id, trio.current_time())) > 0:
            reply: JudgeReply = _busy(
                wait
            )  # before decoding, so that a flood of invalid requests is cheap
        else:
            reply = await self._read_and_reply(peer_id, raw)
        if isinstance(reply, JudgeRefusal):
            self.refused[reply.reason] = self.refused.get(reply.reason, 0) + 1
        return encode_reply(reply)

    async def _read_and_reply(self, peer_id: PeerId, raw: bytes) -> JudgeReply:
        try:
            return await self._reply(peer_id, decode_request(raw))
        except BadAnswerError as error:
            log.debug("%s: %s", peer_id, error)
            return JudgeRefusal(reason=JudgeRefusalReason.BAD_ANSWER)
        except (TaskError, JudgeStoreError) as error:
            # This judge's failure, not the peer's: it may try again.
            log.warning("a request of %s waits: %s", peer_id, error)
            return _busy(RETRY_S)

    async def _reply(
        self, peer_id: PeerId, request: ChallengeRequest | ChallengeAnswer | RecordQuery
    ) -> JudgeReply:
        match request:
            case ChallengeRequest():
                return await self._ask(peer_id, request)
            case ChallengeAnswer():
                return await self._judge(peer_id, request)
            case RecordQuery():
                return await self._records(request)

    async def _ask(self, peer_id: PeerId, request: ChallengeRequest) -> JudgeReply:
        if request.swarm_digest != self._manifest.digest:
            return JudgeRefusal(reason=JudgeRefusalReason.WRONG_SWARM)
        now = trio.current_time()
        if (known := self.desk.open_for(peer_id, now)) is not None:
            return _challenge(known, now)
        if peer_id in self._drawing:
            return _busy(RETRY_S)
        if (wait := self.desk.wait_to_ask(peer_id, now)) > 0:
            return _busy(wait)
        self._drawing.add(peer_id)
        try:
            task, question = await self._draw()
            asked_ms = self._wall_ms()
            count = await trio.to_thread.run_sync(
                lambda: self._store.note_challenge(peer_id, now_ms=asked_ms), limiter=self._disk
            )
        finally:
            self._drawing.discard(peer_id)
        now = trio.current_time()
        challenge = OpenChallenge(
            challenge_id=secrets.token_bytes(CHALLENGE_ID_BYTES),
            peer_id=peer_id,
            task=task,
            question=question,
            asked_ms=asked_ms,
            expires_at=now + self.desk.limits.answer_seconds,
            challenges=count,
        )
        self.desk.put(challenge)
        return _challenge(challenge, now)

    async def _draw(self) -> tuple[TaskCoordinates, str]:
        """Sample a task whose question can be sent. Raises TaskError: none was found."""
        for _ in range(_DRAWS):
            task, question = await self._worker.draw_for_judge(self._rng)
            if 0 < len(question.encode()) <= MAX_QUESTION_BYTES:
                return task, question
        raise TaskError("questions of this swarm are too long to be asked")

    async def _judge(self, peer_id: PeerId, answer: ChallengeAnswer) -> JudgeReply:
        if len(answer.text.encode()) > self._manifest.rules.max_completion_bytes:
            return JudgeRefusal(reason=JudgeRefusalReason.BAD_ANSWER)
        challenge = self.desk.take(peer_id, answer.challenge_id, trio.current_time())
        if isinstance(challenge, JudgeRefusalReason):
            return JudgeRefusal(reason=challenge)
        request = ScoreRequest(
            task=challenge.task, text=answer.text, finish_reason=answer.finish_reason
        )
        try:
            (result,) = await self._worker.score([request])
            envelope = await trio.to_thread.run_sync(
                self._keep, challenge, answer, result.reward, limiter=self._disk
            )
        except (TaskError, JudgeStoreError):
            self.desk.put(challenge)  # not the answer's fault: it may be sent again
            raise
        self.judged += 1
        return SealedRecord(envelope=envelope)

    def _keep(self, challenge: OpenChallenge, answer: ChallengeAnswer, score: float) -> bytes:
        """Sign and store the record; blocks."""

        def make(number: int) -> bytes:
            record = JudgeRecord(
                number=number,
                peer_id=challenge.peer_id,
                round=answer.round,
                policy_version=answer.policy_version,
                model_name=answer.model_name,
                mode=answer.mode,
                swarm_digest=self._manifest.digest,
                family=challenge.task.family,
                config_digest=challenge.task.config_digest,
                seed=challenge.task.seed,
                index=challenge.task.index,
                answer_digest=Digest(hashlib.sha256(answer.text.encode()).digest()),
                finish_reason=answer.finish_reason,
                score=score,
                asked_ms=challenge.asked_ms,
                judged_ms=self._wall_ms(),
                challenges=challenge.challenges,
            )
            identity = self._identity
            return seal_record(record, public_key=identity.public_key_bytes, sign=identity.sign)

        return self._store.add(challenge.peer_id, make)

    async def _records(self, query: RecordQuery) -> JudgeReply:
        if (wait := self.desk.wait_to_query(trio.current_time())) > 0:
            return _busy(wait)
        found = await trio.to_thread.run_sync(
            lambda: self._store.records(after=query.after, limit=query.limit, peer=query.peer_id),
            limiter=self._disk,
        )
        return RecordList(envelopes=tuple(found))


def _challenge(challenge: OpenChallenge, now: float) -> Challenge:
    left_ms = int((challenge.expires_at - now) * 1000)
    return Challenge(
        challenge_id=challenge.challenge_id,
        family=challenge.task.family,
        question=challenge.question,
        answer_within_ms=min(MAX_ANSWER_MS, max(1, left_ms)),
    )


def _busy(seconds: float) -> JudgeRefusal:
    return JudgeRefusal(
        reason=JudgeRefusalReason.BUSY, retry_after_ms=min(MAX_RETRY_MS, int(seconds * 1000) + 1)
    )
