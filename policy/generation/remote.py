"""Answers from any server that speaks OpenAI's protocol: vLLM, SGLang, llama.cpp, an API.

    question × L ──▶ bounded workers ──▶ POST /chat/completions ──▶ Answer
                        │ busy, slow, garbage: again, later        (or /completions)
                        └ given up: the answer is missing, the round goes on

What a server says is untrusted: sizes are bounded, every field is checked, and text that is no
text does not count. No torch here: a node that only generates needs none.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from policy.generation.remote_replies import Fault, read_answer
from policy.rollouts import Answer, OwnGroup, Question, sampling_params
from shoal_settings.schema import Settings
from shoal_tasks.prompts import messages_for, plain_prompt
from shoal_wire.types import SamplingParams

log = logging.getLogger(__name__)

ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0
MAX_REPLY_BYTES = 8 << 20
_POLL_SECONDS = 0.1
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class RemoteError(Exception):
    """The server refuses for good. The text is one line and names the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """Which server, and how much of it."""

    base_url: str
    """Up to and with ``/v1``."""
    model: str
    """The server's name of it."""
    api_key: str | None = None
    request_seconds: float = 120.0
    """Deadline of one request, from its first byte to its reply's last."""
    concurrency: int = 8
    want_logprobs: bool = False
    first_pause_seconds: float = FIRST_PAUSE_SECONDS
    """Before the second try; doubles from there on."""


class RemoteGenerator:
    """Draws completions from a server. One caller at a time."""

    def __init__(
        self,
        config: RemoteConfig,
        *,
        num_completions: int,
        sampling: SamplingParams,
        should_stop: Callable[[], bool],
    ) -> None:
        self._config, self._sampling = config, sampling
        self._num_completions, self._should_stop = num_completions, should_stop
        headers = {"Authorization": f"Bearer {config.api_key}"} if config.api_key else {}
        try:
            self._client = httpx.Client(
                headers=headers,
                timeout=config.request_seconds,
                limits=httpx.Limits(max_connections=config.concurrency),
            )
            httpx.URL(config.base_url)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise RemoteError(f"cannot use {config.base_url}: {error}") from None
        self._dialect = _Dialect(chat=True, logprobs=config.want_logprobs)
        self._answered = False
        self.num_failed = 0
        """Answers given up on so far."""
        self.why_none = ""
        """Why the latest call brought no answer at all, in words; empty where it brought some."""

    def answer(
        self,
        questions: Sequence[Question],
        on_step: Callable[[int, float], None] = lambda _done, _fraction: None,
    ) -> list[OwnGroup]:
        """Return a group for every question that got at least two answers.

        Tells `on_step` how many answers there are, and which part of all that is. What is missing
        is said in one line, or where all are in `why_none`.

        Blocks while the server works, at most until told to stop. Raises RemoteError when the
        server refuses (a wrong key, model or address) and has never answered before.
        """
        todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Answer | Exception]] = queue.SimpleQueue()
        for number in range(len(questions) * self._num_completions):
            todo.put(number)
        for _ in range(min(self._config.concurrency, todo.qsize())):
            # Daemons: a request that hangs must not hold up the end of the program.
            threading.Thread(target=self._work, args=(questions, todo, done), daemon=True).start()
        answers: list[list[Answer]] = [[] for _ in questions]
        refused: RemoteError | None = None
        faults: Counter[str] = Counter()
        num_wanted = len(questions) * self._num_completions
        for num_heard in range(1, num_wanted + 1):
            found = self._next(done)
            if found is None:
                break
            number, answer = found
            if isinstance(answer, Answer):
                answers[number // self._num_completions].append(answer)
                self._answered = True
            else:
                faults[_said(answer)] += 1
                refused = answer if isinstance(answer, RemoteError) else refused
            on_step(num_heard - faults.total(), num_heard / num_wanted)
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
            url, missing = self._config.base_url, faults.total()
            log.warning("%d answers of %s are missing: %s", missing, url, reason)
        else:
            self.why_none = f"no answer from {self._config.base_url}: {reason}"

    def _next(
        self, done: queue.SimpleQueue[tuple[int, Answer | Exception]]
    ) -> tuple[int, Answer | Exception] | None:
        while not self._should_stop():
            try:
                return done.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
        return None

    def _work(
        self,
        questions: Sequence[Question],
        todo: queue.SimpleQueue[int],
        done: queue.SimpleQueue[tuple[int, Answer | Exception]],
    ) -> None:
        while not self._should_stop():
            try:
                number = todo.get_nowait()
            except queue.Empty:
                return
            try:
                outcome: Answer | Exception = self._ask(questions[number // self._num_completions])
            except Exception as error:  # noqa: BLE001 - a lost outcome would hold up the round
                outcome = error
            done.put((number, outcome))

    def _ask(self, question: Question) -> Answer:
        """Ask until there is an answer. Raises Fault or RemoteError once that is hopeless."""
        pause = self._config.first_pause_seconds
        for attempt in range(ATTEMPTS):
            dialect = self._dialect
            try:
                status, body, retry_after = self._post(question, dialect)
                if status == 200:
                    return read_answer(body, chat=dialect.chat)
                self._refused(status, body, dialect)
                fault = Fault(f"status {status}")
            except httpx.HTTPError as error:
                fault, retry_after = Fault(_named(error)), None
            except Fault as error:
                fault, retry_after = error, None
            if self._dialect != dialect:
                continue  # understood why: ask in the other way at once
            if attempt == ATTEMPTS - 1 or self._should_stop():
                break
            self._wait(min(MAX_PAUSE_SECONDS, retry_after or pause * random.uniform(0.5, 1)))
            pause *= 2
        raise fault

    def _post(self, question: Question, dialect: _Dialect) -> tuple[int, bytes, float | None]:
        """One request: status, body, and the seconds the server asks to wait."""
        deadline = time.monotonic() + self._config.request_seconds
        address = self._config.base_url.rstrip("/") + dialect.path
        body = bytearray()
        with self._client.stream("POST", address, json=self._request(question, dialect)) as reply:
            for part in reply.iter_bytes():
                body += part
                if len(body) > MAX_REPLY_BYTES:
                    raise Fault("reply is too large")
                if time.monotonic() > deadline:
                    raise Fault("reply took too long")
            return reply.status_code, bytes(body), _seconds(reply.headers.get("retry-after"))

    def _request(self, question: Question, dialect: _Dialect) -> dict[str, Any]:
        sampling = self._sampling
        request: dict[str, Any] = {
            "model": self._config.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            dialect.limit_name: sampling.max_new_tokens,
        }
        if sampling.top_k:
            request["top_k"] = sampling.top_k
        if dialect.chat:
            request["messages"] = messages_for(question.text, tagged=question.tagged)
            if dialect.logprobs:
                request["logprobs"] = True
        else:
            request["prompt"] = plain_prompt(question.text, tagged=question.tagged)
            if dialect.logprobs:
                request["logprobs"] = 1
        return request

    def _refused(self, status: int, body: bytes, dialect: _Dialect) -> None:
        """Learn the server's dialect from a refusal; raise RemoteError when there is no way."""
        if status in _BUSY:
            return
        text = body[:2000].decode("utf-8", "replace")
        changed = dialect.after(status, text)
        if changed is None:
            said = " ".join(text.split())[:200]
            raise RemoteError(f"{self._config.base_url} refuses: status {status} {said}".rstrip())
        self._dialect = changed

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._should_stop() and (left := until - time.monotonic()) > 0:
            time.sleep(min(_POLL_SECONDS, left))


def remote_model(settings: Settings) -> str:
    """Return the server's name of its model, as settings have it."""
    return settings.model if settings.remote_model == "auto" else settings.remote_model


def remote_generator(settings: Settings, should_stop: Callable[[], bool]) -> RemoteGenerator:
    """Return the generator that settings ask for; nothing is asked of the server yet.

    Raises RemoteError for an address that cannot be used.
    """
    return RemoteGenerator(
        RemoteConfig(
            base_url=settings.base_url,
            model=remote_model(settings),
            api_key=os.environ.get(settings.api_key_env) or None,
            request_seconds=settings.request_seconds,
            concurrency=settings.concurrency,
            want_logprobs=settings.share_logprobs,
        ),
        num_completions=settings.completions,
        sampling=sampling_params(settings),
        should_stop=should_stop,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    """What of the protocol a server has turned out to know."""

    chat: bool
    """Else plain completions: a base model has no chat template."""
    logprobs: bool
    limit_name: str = "max_tokens"

    @property
    def path(self) -> str:
        return "/chat/completions" if self.chat else "/completions"

    def after(self, status: int, text: str) -> _Dialect | None:
        """The way to ask after this refusal; None when there is none left."""
        bad_request = status in (400, 422)
        if bad_request and "max_completion_tokens" in text and self.limit_name == "max_tokens":
            return _Dialect(
                chat=self.chat, logprobs=self.logprobs, limit_name="max_completion_tokens"
            )
        if self.chat and (status in (404, 405) or (bad_request and "chat template" in text)):
            return _Dialect(chat=False, logprobs=self.logprobs, limit_name="max_tokens")
        if bad_request and self.logprobs:
            return _Dialect(chat=self.chat, logprobs=False, limit_name=self.limit_name)
        return None


def _named(error: Exception) -> str:
    """An error's kind and what it says, in one line."""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _said(error: Exception) -> str:
    """What a fault says; the kind too of an error that nobody foresaw."""
    return str(error) if isinstance(error, Fault | RemoteError) else _named(error)


def _seconds(retry_after: str | None) -> float | None:
    try:
        return max(0.0, float(retry_after or ""))
    except ValueError:
        return None
