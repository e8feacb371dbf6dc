"""The node's client of a judge. The trainer polls it and never waits for it.

    idle ──ask──▶ asking ──▶ asked ──answer──▶ scoring ──▶ scored
     ▲               │                            │          │ ask
     └── unreachable, or refused: `ask` fails for a while ◄────┴─▶ asking

Every step that a judge can delay has a deadline and runs in `run`; `ask` and `answer` return
immediately.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING

import trio

from shoal_base.waits import MINUTE_S, RETRY_S, SHORT_DEADLINE_S
from shoal_ipc import messages as m
from shoal_ipc.answers.node import WINDOW, JudgedView
from shoal_p2p.net.address import parse_peer_address
from shoal_p2p.net.host import DialError, RequestError
from shoal_p2p.net.interface import Host
from shoal_wire.errors import RemoteError
from shoal_wire.judge import (
    JUDGE_PROTOCOL,
    MAX_JUDGE_REPLY_BYTES,
    decode_reply,
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
    SealedRecord,
)
from shoal_wire.manifest import Manifest

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

_REPLY_SECONDS = 25.0
"""Deadline for a reply, in seconds: a judge gives itself 20."""
_TRIES = 3


class JudgePhase(StrEnum):
    """State of the exchange with the judge."""

    IDLE = "idle"
    ASKING = "asking"
    ASKED = "asked"
    SCORING = "scoring"
    SCORED = "scored"


class JudgeLinkError(Exception):
    """The exchange with the judge failed; the text is one line."""


class JudgeLink:
    """One exchange at a time with one judge."""

    def __init__(self, *, host: Host, manifest: Manifest, address: str) -> None:
        self._host = host
        self._manifest = manifest
        self._address = address
        self._judge = parse_peer_address(address).peer_id
        self._tagged = {f.name: f.answer_format == "tagged" for f in manifest.families}
        self._wake = trio.Event()
        self._phase = JudgePhase.IDLE
        self._question: m.JudgeChallenge | None = None
        """The question that waits for an answer."""
        self._expires_at = 0.0
        self._answer: m.JudgeAnswer | None = None
        self._score: m.JudgeScore | None = None
        self._error: str | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._scores: deque[float] = deque(maxlen=WINDOW)
        self._judged = 0

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry out what `ask` and `answer` have started, until cancelled."""
        task_status.started()
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            try:
                if self._phase is JudgePhase.ASKING:
                    await self._ask_judge()
                elif self._phase is JudgePhase.SCORING:
                    await self._submit_answer()
            except JudgeLinkError as error:
                self._fail(str(error))
            else:
                self._recover()

    def ask(self) -> m.JudgeChallenge | m.Failure:
        """Return the judge's question, or why there is none (yet)."""
        now = trio.current_time()
        if self._phase in (JudgePhase.ASKING, JudgePhase.SCORING):
            return m.Failure(reason=f"the judge is {self._phase}", retryable=True)
        if self._question is not None and now < self._expires_at:
            return self._question
        if now < self._retry_at:
            return m.Failure(reason=self._error or "the judge failed; it is asked again later")
        self._begin(JudgePhase.ASKING)
        return m.Failure(reason="the judge is being asked", retryable=True)

    def answer(self, body: m.JudgeAnswer) -> m.JudgeScore | m.Failure:
        """Accept an answer for scoring, or return the score of one accepted before."""
        if self._question is not None and self._question.challenge_id == body.challenge_id:
            self._answer = body
            self._begin(JudgePhase.SCORING)
        if self._answer is not None and self._answer.challenge_id == body.challenge_id:
            if self._phase is JudgePhase.SCORED and self._score is not None:
                return self._score
            if self._phase is JudgePhase.SCORING:
                return m.Failure(reason="the judge is scoring", retryable=True)
        return m.Failure(reason=self._error or "the judge expects no such answer")

    def view(self) -> JudgedView:
        """Return what `shoal status` shows."""
        answer = self._answer
        return JudgedView(
            address=self._address,
            state=str(self._phase),
            judged=self._judged,
            score=self._scores[-1] if self._scores else None,
            mean_score=sum(self._scores) / len(self._scores) if self._scores else None,
            round=answer.round if answer is not None and self._judged else None,
            error=self._error,
        )

    def _begin(self, phase: JudgePhase) -> None:
        self._phase, self._question = phase, None
        self._wake.set()

    def _fail(self, why: str) -> None:
        if self._error is None:
            log.warning("no score from the judge: %s; training continues without", why)
        self._error = why
        pause = min(MINUTE_S, RETRY_S * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        self._retry_at = trio.current_time() + pause
        self._phase = JudgePhase.IDLE

    def _recover(self) -> None:
        if self._error is not None:
            log.info("the judge answers again")
        self._error, self._failures, self._retry_at = None, 0, 0.0

    async def _ask_judge(self) -> None:
        reply = await self._request(ChallengeRequest(swarm_digest=self._manifest.digest))
        if not isinstance(reply, Challenge) or reply.family not in self._tagged:
            raise JudgeLinkError(f"it answered with {_describe_reply(reply)}")
        self._question = m.JudgeChallenge(
            challenge_id=reply.challenge_id,
            family=reply.family,
            question=reply.question,
            tagged=self._tagged[reply.family],
        )
        self._expires_at = trio.current_time() + reply.answer_within_ms / 1000
        self._phase = JudgePhase.ASKED

    async def _submit_answer(self) -> None:
        answer = self._answer
        assert answer is not None
        sent = ChallengeAnswer(
            challenge_id=answer.challenge_id,
            text=answer.text,
            finish_reason=answer.finish_reason,
            round=answer.round,
            policy_version=answer.policy_version,
            model_name=answer.model_name,
            mode=Mode.SWARM if answer.uses_external_groups else Mode.SILO,
        )
        reply = await self._request(sent)
        if not isinstance(reply, SealedRecord):
            raise JudgeLinkError(f"it answered with {_describe_reply(reply)}")
        record = self._checked(reply.envelope, sent)
        self._score = m.JudgeScore(score=record.score, number=record.number, family=record.family)
        self._scores.append(record.score)
        self._judged += 1
        self._phase = JudgePhase.SCORED

    def _checked(self, envelope: bytes, sent: ChallengeAnswer) -> JudgeRecord:
        """Return the record if it belongs to this answer. Raises JudgeLinkError if not."""
        try:
            record = open_record(envelope, judge=self._judge)
        except RemoteError as error:
            raise JudgeLinkError(str(error)) from None
        claimed = (record.peer_id, record.swarm_digest, record.answer_digest, record.round)
        digest = hashlib.sha256(sent.text.encode()).digest()
        expected = (self._host.peer_id, self._manifest.digest, digest, sent.round)
        if claimed != expected or record.mode is not sent.mode:
            raise JudgeLinkError("its record does not belong to the answer that was sent")
        return record

    async def _request(self, request: JudgeRequest) -> JudgeReply:
        """Connect and send a request; retry if the judge is busy briefly. Raises JudgeLinkError."""
        for _ in range(_TRIES):
            try:
                await self._host.dial(self._address, timeout=SHORT_DEADLINE_S)
                raw = await self._host.request(
                    self._judge,
                    JUDGE_PROTOCOL,
                    encode_request(request),
                    max_response_bytes=MAX_JUDGE_REPLY_BYTES,
                    timeout=_REPLY_SECONDS,
                )
                reply = decode_reply(raw)
            except (DialError, RequestError, RemoteError) as error:
                raise JudgeLinkError(str(error)) from None
            wait = reply.retry_after_ms / 1000 if isinstance(reply, JudgeRefusal) else 0.0
            if not isinstance(reply, JudgeRefusal) or reply.reason is not JudgeRefusalReason.BUSY:
                return reply
            if wait > SHORT_DEADLINE_S:  # left to a later `ask`
                break
            await trio.sleep(wait)
        raise JudgeLinkError("it is busy")


def _describe_reply(reply: JudgeReply) -> str:
    return reply.reason if isinstance(reply, JudgeRefusal) else f"a {type(reply).__name__}"
