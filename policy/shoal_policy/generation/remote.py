"""Answers from any server that speaks OpenAI's protocol: vLLM, SGLang, llama.cpp, an API.

    question × L ──▶ bounded workers ──▶ POST /chat/completions ──▶ Answer
       ▲                │ busy, slow, garbage: again, later        (or /completions)
       └ a game's turn  └ given up: the answer is missing, the round goes on

What a server says is untrusted: sizes are bounded, every field is checked, and text that is no
text does not count. No tensors: a node that only generates needs no torch.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal_policy.generation.replies import BadReplyError, read_answer
from shoal_policy.generation.requests import (
    BUSY,
    InferenceServer,
    Reply,
    ServerRefusedError,
    said,
)
from shoal_policy.generation.transcript import PlayGames, Transcript, no_games
from shoal_policy.rollouts import Answer, OwnGroup, Question, public_model_name, sampling_params
from shoal_settings.schema import Settings
from shoal_settings.trainer_settings import API_KEY_VARIABLE
from shoal_tasks.prompts import messages_for, plain_prompt, plain_turn
from shoal_wire.types import Digest, PolicyInfo, SamplingParams

log = logging.getLogger(__name__)


class RemoteGenerator:
    """Draws completions from a server. One caller at a time."""

    def __init__(
        self,
        server: InferenceServer,
        *,
        model: str,
        num_completions: int,
        sampling: SamplingParams,
        chat: bool = True,
    ) -> None:
        """`model` is its name on the server. Without `chat` plain completions are asked for from
        the start."""
        self._server, self._model, self._sampling = server, model, sampling
        self._num_completions = num_completions
        self._dialect = _Dialect(chat=chat)
        self.author = PolicyInfo(
            model_name=public_model_name(model), tokenizer_digest=Digest(b""), policy_version=0
        )
        """The author as peers are told: no claim about tokens can be checked."""
        self._answered = False
        self.num_failed = 0
        """Answers given up on so far."""
        self.why_none = ""
        """Why the latest call brought no answer at all, in words; empty where it brought some."""

    def answer(
        self,
        questions: Sequence[Question],
        on_step: Callable[[int, float], None] = lambda _done, _fraction: None,
        play: PlayGames = no_games,
    ) -> list[OwnGroup]:
        """Return a group for every question that got at least two answers.

        `play` answers for environments; each game goes on at its own pace.

        Tells `on_step` how many answers there are, and which part of all that is. What is missing
        is said in one line, or where all are in `why_none`.

        Blocks while the server works, at most until told to stop. Raises RemoteError when the
        server refuses (a wrong key, model or address) and has never answered before.
        """
        answers: list[list[Answer]] = [[] for _ in questions]
        refused: ServerRefusedError | None = None
        faults: Counter[str] = Counter()
        num_wanted = len(questions) * self._num_completions
        asked = self._server.parallel(self._ask)
        for number, question in enumerate(questions):
            for _ in range(self._num_completions):
                asked.add(Transcript(question=question, number=number))
        num_over = 0
        for talk, outcome in asked.outcomes():
            if isinstance(outcome, Answer):
                self._answered = True
                talk.add_message(outcome)
                if talk.ended is None:
                    talk.add_play(*play([talk.request]))
                if talk.ended is None:
                    asked.add(talk)
                    continue
                answers[talk.number].append(talk.answer())
            else:
                faults[said(outcome)] += 1
                refused = outcome if isinstance(outcome, ServerRefusedError) else refused
            num_over += 1
            on_step(num_over - faults.total(), num_over / num_wanted)
        self.num_failed += faults.total()
        if refused is not None and not self._answered:
            raise refused
        self._say_missing(faults, num_answers=sum(map(len, answers)))
        return [
            OwnGroup(question=question, answers=tuple(found))
            for question, found in zip(questions, answers, strict=True)
            if len(found) > 1
        ]

    def _say_missing(self, faults: Counter[str], *, num_answers: int) -> None:
        self.why_none = ""
        if not faults:
            return
        [(reason, _)] = faults.most_common(1)
        if num_answers:
            url, missing = self._server.base_url, faults.total()
            log.warning("%d answers of %s are missing: %s", missing, url, reason)
        else:
            self.why_none = f"no answer from {self._server.base_url}: {reason}"

    def _ask(self, talk: Transcript) -> Answer:
        """Ask until there is an answer. Raises Fault or RemoteError once that is hopeless."""

        def once() -> Answer | None:
            dialect = self._dialect
            address = self._server.base_url + dialect.path
            reply = self._server.post(address, self._request(talk, dialect))
            if reply.status == 200:
                return read_answer(reply.body, chat=dialect.chat)
            self._refused(reply, dialect)
            if self._dialect != dialect:
                return None  # understood why: ask in the other way at once
            raise BadReplyError(f"status {reply.status}", reply.retry_after)

        return self._server.persist(once)

    def _request(self, talk: Transcript, dialect: _Dialect) -> dict[str, Any]:
        sampling = self._sampling
        request: dict[str, Any] = {
            "model": self._model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            dialect.limit_name: sampling.max_new_tokens,
        }
        if sampling.top_k:
            request["top_k"] = sampling.top_k
        question = talk.question
        heard = zip(talk.messages, talk.observations, strict=True)
        if dialect.chat:
            request["messages"] = messages_for(
                question.text, tagged=question.tagged, system=question.system
            )
            for message, observation in heard:
                request["messages"].append({"role": "assistant", "content": message})
                request["messages"].append({"role": "user", "content": observation})
        else:
            request["prompt"] = plain_prompt(
                question.text, tagged=question.tagged, system=question.system
            )
            for message, observation in heard:
                request["prompt"] += message + plain_turn(observation)
        return request

    def _refused(self, reply: Reply, dialect: _Dialect) -> None:
        """Learn the server's dialect from a refusal; raise RemoteError when there is no way."""
        if reply.status in BUSY:
            return
        text = reply.body[:2000].decode("utf-8", "replace")
        changed = dialect.after(reply.status, text)
        if changed is None:
            said = f"{self._server.base_url} refuses: status {reply.status} {reply.said}"
            raise ServerRefusedError(f"{said.rstrip()}{_DO.get(reply.status, '')}")
        self._dialect = changed


_DO: Final = {
    401: f"; its key belongs in the variable {API_KEY_VARIABLE}",
    403: f"; its key belongs in the variable {API_KEY_VARIABLE}",
    404: "; give --remote-model a name that its /models lists",
}
"""The advice on a refusal, by its status."""


def remote_model(settings: Settings) -> str:
    """Return the server's name of its model, as settings have it."""
    return settings.model if settings.remote_model == "auto" else settings.remote_model


def remote_generator(settings: Settings, should_stop: Callable[[], bool]) -> RemoteGenerator:
    """Return the generator that settings ask for; nothing is asked of the server yet.

    Raises RemoteError for an address that cannot be used.
    """
    return RemoteGenerator(
        server_of(settings, should_stop),
        model=remote_model(settings),
        num_completions=settings.completions,
        sampling=sampling_params(settings),
        chat=settings.prompt != "plain",
    )


def server_of(settings: Settings, should_stop: Callable[[], bool]) -> InferenceServer:
    """Return the server that settings name; nothing is asked of it yet.

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
    """The part of the protocol that a server has turned out to know."""

    chat: bool
    """Else plain completions: a base model has no chat template."""
    limit_name: str = "max_tokens"

    @property
    def path(self) -> str:
        return "/chat/completions" if self.chat else "/completions"

    def after(self, status: int, text: str) -> _Dialect | None:
        """The way to ask after this refusal; None when there is none left."""
        bad_request = status in (400, 422)
        if bad_request and "max_completion_tokens" in text and self.limit_name == "max_tokens":
            return _Dialect(chat=self.chat, limit_name="max_completion_tokens")
        if self.chat and (status in (404, 405) or (bad_request and "chat template" in text)):
            return _Dialect(chat=False)
        return None
