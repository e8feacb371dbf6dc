"""Generates through any server with OpenAI's API: vLLM, SGLang, llama.cpp, a hosted API.

    question × L ──▶ bounded workers ──▶ POST /chat/completions ──▶ Answer
       ▲                │ busy, slow, invalid: retry later         (or /completions)
       └ a game's turn  └ abandoned: the answer is missing, the round continues

Replies are untrusted: sizes are limited, every field is checked, and invalid text is rejected. No
tensors: a node that only generates needs no torch.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shoal_policy.generation.replies import BadReplyError, read_answer, read_filtered
from shoal_policy.generation.requests import (
    BUSY,
    InferenceServer,
    Reply,
    ServerRefusedError,
    describe_failure,
    has_version,
)
from shoal_policy.generation.transcript import PlayGames, Transcript, no_games
from shoal_policy.rollouts import Answer, OwnGroup, Question, public_model_name, sampling_params
from shoal_settings.schema import Settings
from shoal_settings.trainer_settings import API_KEY_VARIABLE
from shoal_tasks.prompts import messages_for, plain_prompt, plain_turn
from shoal_wire.types import Digest, PolicyInfo, SamplingParams

log = logging.getLogger(__name__)


class RemoteGenerator:
    """Generates completions through a server. One caller at a time."""

    def __init__(
        self,
        server: InferenceServer,
        *,
        model: str,
        num_completions: int,
        sampling: SamplingParams,
        chat: bool = True,
    ) -> None:
        """`model` is its name on the server. Without `chat`, plain completions are requested from
        the start."""
        self._server, self._model, self._sampling = server, model, sampling
        self._num_completions = num_completions
        other = None if has_version(server.base_url) else "/v1"
        self._dialect = _Dialect(chat=chat, other_prefix=other)
        self.author = PolicyInfo(
            model_name=public_model_name(model), tokenizer_digest=Digest(b""), policy_version=0
        )
        """The author as peers see it. No tokenizer digest: its tokens cannot be checked."""
        self._answered = False
        self.num_failed = 0
        """Answers abandoned so far."""
        self.failure = ""
        """The reason why the latest call got no answer at all; empty if it got some."""

    def generate(
        self,
        questions: Sequence[Question],
        on_step: Callable[[int, float], None] = lambda _done, _fraction: None,
        play: PlayGames = no_games,
    ) -> list[OwnGroup]:
        """Return a group for every question with at least two answers.

        `play` replies for environments; each game continues at its own pace. Calls `on_step` with
        the number of answers and the fraction done. Missing answers are logged in one line; if all
        are missing, `failure` states why.

        Blocks while the server works, at most until `should_stop`. Raises ServerRefusedError if the
        server refuses (a wrong key, model or address) and has never answered before.
        """
        answers: list[list[Answer]] = [[] for _ in questions]
        refused: ServerRefusedError | None = None
        faults: Counter[str] = Counter()
        num_wanted = len(questions) * self._num_completions
        pool = self._server.start_pool(self._request_answer)
        for number, question in enumerate(questions):
            for _ in range(self._num_completions):
                pool.add(Transcript(question=question, number=number))
        num_over = 0
        for transcript, outcome in pool.as_completed():
            if isinstance(outcome, Answer):
                self._answered = True
                transcript.add_message(outcome)
                if transcript.ended is None:
                    transcript.add_play(*play([transcript.request]))
                if transcript.ended is None:
                    pool.add(transcript)
                    continue
                answers[transcript.number].append(transcript.answer())
            else:
                faults[describe_failure(outcome)] += 1
                refused = outcome if isinstance(outcome, ServerRefusedError) else refused
            num_over += 1
            on_step(num_over - faults.total(), num_over / num_wanted)
        self.num_failed += faults.total()
        if refused is not None and not self._answered:
            raise refused
        self._log_missing(faults, num_answers=sum(map(len, answers)))
        return [
            OwnGroup(question=question, answers=tuple(found))
            for question, found in zip(questions, answers, strict=True)
            if len(found) > 1
        ]

    def _log_missing(self, faults: Counter[str], *, num_answers: int) -> None:
        self.failure = ""
        if not faults:
            return
        [(reason, _)] = faults.most_common(1)
        if num_answers:
            url, missing = self._server.base_url, faults.total()
            log.warning("%d answers of %s are missing: %s", missing, url, reason)
        else:
            self.failure = f"no answer from {self._server.base_url}: {reason}"

    def _request_answer(self, transcript: Transcript) -> Answer:
        """Request until there is an answer. Raises BadReplyError or ServerRefusedError."""

        def once() -> Answer | None:
            dialect = self._dialect
            address = self._server.base_url + dialect.path
            reply = self._server.post(address, self._request(transcript, dialect))
            if reply.status == 200:
                return read_answer(reply.body, chat=dialect.chat)
            if (filtered := read_filtered(reply.body)) is not None:
                return filtered
            self._handle_refusal(reply, dialect)
            if self._dialect != dialect:
                return None  # adapted: retry at once
            raise BadReplyError(f"status {reply.status}", reply.retry_after)

        return self._server.retry(once)

    def _request(self, transcript: Transcript, dialect: _Dialect) -> dict[str, Any]:
        sampling = self._sampling
        request: dict[str, Any] = {
            "model": self._model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            dialect.limit_name: sampling.max_new_tokens,
        }
        if sampling.top_k:
            request["top_k"] = sampling.top_k
        question = transcript.question
        turns = zip(transcript.messages, transcript.observations, strict=True)
        if dialect.chat:
            request["messages"] = messages_for(
                question.text, tagged=question.tagged, system=question.system
            )
            for message, observation in turns:
                request["messages"].append({"role": "assistant", "content": message})
                request["messages"].append({"role": "user", "content": observation})
        else:
            request["prompt"] = plain_prompt(
                question.text, tagged=question.tagged, system=question.system
            )
            for message, observation in turns:
                request["prompt"] += message + plain_turn(observation)
        return request

    def _handle_refusal(self, reply: Reply, dialect: _Dialect) -> None:
        """Adapt to the server's dialect after a refusal; raise ServerRefusedError if impossible."""
        if reply.status in BUSY:
            return
        text = reply.body[:2000].decode("utf-8", "replace")
        changed = dialect.after(reply.status, text)
        if changed is None:
            message = f"{self._server.base_url} refuses: status {reply.status} {reply.text}"
            raise ServerRefusedError(f"{message.rstrip()}{_REMEDIES.get(reply.status, '')}")
        if self._dialect == dialect:  # otherwise another request has adapted it further
            self._dialect = changed


_REMEDIES: Final = {
    401: f"; its key belongs in the variable {API_KEY_VARIABLE}",
    403: f"; its key belongs in the variable {API_KEY_VARIABLE}",
    404: "; give --remote-model a name that its /models lists",
}
"""Advice on a refusal, by status."""


def remote_model(settings: Settings) -> str:
    """Return the server's name of the configured model."""
    return settings.model if settings.remote_model == "auto" else settings.remote_model


def build_remote_generator(settings: Settings, should_stop: Callable[[], bool]) -> RemoteGenerator:
    """Return the configured generator, without contacting the server.

    Raises ServerRefusedError for an address that cannot be used.
    """
    return RemoteGenerator(
        build_server(settings, should_stop),
        model=remote_model(settings),
        num_completions=settings.completions,
        sampling=sampling_params(settings),
        chat=settings.prompt != "plain",
    )


def build_server(settings: Settings, should_stop: Callable[[], bool]) -> InferenceServer:
    """Return the configured server, without contacting it.

    Raises ServerRefusedError for an address that cannot be used.
    """
    return InferenceServer(
        settings.base_url,
        api_key=os.environ.get(API_KEY_VARIABLE) or None,
        connections=settings.concurrency,
        should_stop=should_stop,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    """The part of the protocol that a server supports."""

    chat: bool
    """False requests plain completions: a base model has no chat template."""
    limit_name: str = "max_tokens"
    prefix: str = ""
    """Prefix of the path that the base address lacks."""
    other_prefix: str | None = None
    """Prefix to try before anything else changes; None if it was tried or none can be missing."""

    @property
    def path(self) -> str:
        return self.prefix + ("/chat/completions" if self.chat else "/completions")

    def after(self, status: int, text: str) -> _Dialect | None:
        """Return the dialect to try after this refusal; None if there is none left."""
        bad_request = status in (400, 422)
        if bad_request and "max_completion_tokens" in text and self.limit_name == "max_tokens":
            return replace(self, limit_name="max_completion_tokens")
        if status in (404, 405) and self.other_prefix is not None:
            return replace(self, prefix=self.other_prefix, other_prefix=None)
        if self.chat and (status in (404, 405) or (bad_request and "chat template" in text)):
            return replace(self, chat=False)
        return None
