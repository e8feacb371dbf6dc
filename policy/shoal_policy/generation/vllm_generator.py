"""Generates through a vLLM server that receives the policy's weights.

    outdated? ─▶ push weights ─▶ verify ─▶ POST /v1/completions, token ids in, n = L
         └ fails or differs: nothing is requested; the round trains on external groups only

Later messages of a game are requested one by one, after the tokens of all earlier ones, each game
at its own pace. The server finds the conversation in its prefix cache.

Every answer is stamped with the policy version that generated it. The server's log-probabilities
give importance weights in the update (truncated importance sampling), since its arithmetic differs
from the policy's.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal_policy.generation.game import PlayedGame, continue_games, message_seed
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.probe import build_probe, logprob_difference, max_difference
from shoal_policy.generation.questions import fit_prompts
from shoal_policy.generation.remote import build_server, remote_model
from shoal_policy.generation.replies import BadReplyError, ExpectedReply, read_token_answers
from shoal_policy.generation.requests import (
    BUSY,
    InferenceServer,
    ServerRefusedError,
    WorkerPool,
    base_address,
    describe_failure,
    has_version,
)
from shoal_policy.generation.served_weights import AdapterPusher, FullWeightsPusher, Pusher
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.prompting import decode_completion
from shoal_policy.rollouts import Answer, Origin, OwnGroup, Question, public_model_name
from shoal_settings.schema import Settings
from shoal_wire.types import PolicyInfo, SamplingParams

log = logging.getLogger(__name__)

_MAX_PASSES = 2
"""Passes over the questions: a restarted server receives the weights once more."""


class _UnknownModelError(BadReplyError):
    """The server does not have the requested weights."""


class VllmGenerator:
    """A `Generator` through a server that follows the policy. One caller at a time."""

    def __init__(self, server: InferenceServer, pusher: Pusher) -> None:
        self._server, self._pusher = server, pusher
        self._name, self._version = "", -1
        self._answered = False
        self.server_logp_difference: float | None = None
        """See `Generator`."""

    def generate(self, request: GenerationRequest) -> list[OwnGroup]:
        """See `Generator`. Questions with fewer than two answers are skipped.

        Raises ModelError if the server refuses and has never answered before.
        """
        questions, prompts = fit_prompts(request.policy, request.questions)
        found: dict[int, dict[int, Answer]] = {}
        faults: Counter[str] = Counter()
        for _ in range(_MAX_PASSES):
            try:
                if self._sync_weights(request):
                    found.clear()  # all answers of a round are of one version
                missing = [number for number in range(len(prompts)) if number not in found]
                again, faults = self._request_missing(request, questions, prompts, missing, found)
            except (BadReplyError, ServerRefusedError) as error:
                if isinstance(error, ServerRefusedError) and not self._answered:
                    raise ModelError(str(error)) from None
                again, faults = (
                    isinstance(error, _UnknownModelError),
                    Counter([describe_failure(error)]),
                )
            if not again or self._server.should_stop():
                break
        self._log_missing(faults, len(found))
        return [
            self._group(request, questions[number], found[number])
            for number in sorted(found)
            if len(found[number]) > 1
        ]

    def _sync_weights(self, request: GenerationRequest) -> bool:
        """Send the policy's weights to the server if they are outdated; return whether the server
        now has another version than it answered with before."""
        if self._name and request.policy_version == self._version:
            return False
        self._name, before = "", self._version
        name = self._pusher.push(request.policy, request.policy_version)
        self._check_weights(request, name)
        self._name, self._version = name, request.policy_version
        return before != self._version

    def _check_weights(self, request: GenerationRequest, name: str) -> None:
        """Compare the weights that the server uses under this name with the policy's.

        Raises ServerRefusedError if they differ, BadReplyError if the server does not answer.
        """
        probe, prompt = build_probe(request)
        completion = _CompletionRequest(
            number=0,
            prompt=prompt,
            num_completions=probe.num_completions,
            seed=f"{probe.seed}/{prompt}",
        )
        answers = self._request(probe, completion, name)
        temperature = probe.sampling.temperature
        self.server_logp_difference = logprob_difference(
            request.policy, prompt, answers, temperature
        )
        url, remedy = self._server.base_url, self._pusher.remedy
        if self.server_logp_difference is None:
            raise ServerRefusedError(
                f"{url} gives no usable log-probabilities of its tokens: {remedy}"
            )
        if self.server_logp_difference > max_difference(temperature):
            raise ServerRefusedError(
                f"{url} does not follow the policy: its log-probabilities are "
                f"{self.server_logp_difference:.2g} nats a token from the policy's, "
                f"over {max_difference(temperature):.2g}: {remedy}"
            )

    def _request_missing(
        self,
        request: GenerationRequest,
        questions: Sequence[Question],
        prompts: Sequence[Sequence[int]],
        missing: Sequence[int],
        found: dict[int, dict[int, Answer]],
    ) -> tuple[bool, Counter[str]]:
        """Request missing answers; return whether the server lacks the weights, and failures."""
        faults: Counter[str] = Counter()
        lacks, total = False, len(prompts) * request.num_completions
        pool: WorkerPool[_CompletionRequest, list[Answer]] = self._server.start_pool(
            lambda completion: self._request(request, completion, self._name)
        )
        for number in missing:
            first = _CompletionRequest(
                number=number,
                prompt=prompts[number],
                num_completions=request.num_completions,
                seed=f"{request.seed}/{list(prompts[number])}",
            )
            pool.add(first)
        for completion, outcome in pool.as_completed():
            if isinstance(outcome, Exception):
                faults[describe_failure(outcome)] += 1
                lacks = lacks or isinstance(outcome, _UnknownModelError)
                if isinstance(outcome, ServerRefusedError) and not self._answered:
                    raise outcome
                continue
            self._answered = True
            question = questions[completion.number]
            samples = [_with_text(request.policy, one) for one in outcome]
            over = found.setdefault(completion.number, {})
            if not question.max_turns:
                over |= enumerate(samples)
            else:
                games = (
                    [completion.game]
                    if completion.game
                    else _games(question, completion, len(samples))
                )
                for game, sample in zip(games, samples, strict=True):
                    game.add_message(request.policy, sample)
                for game in continue_games(request.policy, games, request.play):
                    pool.add(_next_message(request, completion.number, game))
                over |= {game.place: game.answer() for game in games if game.ended is not None}
            done = sum(map(len, found.values()))
            request.on_step(done, min(1.0, done / total))
        if lacks:
            self._name = ""
        return lacks, faults

    def _request(
        self, request: GenerationRequest, completion: _CompletionRequest, name: str
    ) -> list[Answer]:
        policy, prompt = request.policy, completion.prompt
        expected = ExpectedReply(
            model=name,
            prompt_ids=prompt,
            num_completions=completion.num_completions,
            max_tokens=min(request.sampling.max_new_tokens, policy.max_positions - len(prompt)),
            vocabulary=int(policy.model.config.get_text_config().vocab_size),
            eos_ids=policy.eos_ids,
        )
        document = _document(request.sampling, expected, completion.seed)

        def once() -> list[Answer]:
            address = f"{self._server.base_url}/completions"
            reply = self._server.post(address, document, expected.max_bytes)
            if reply.status == 200:
                return read_token_answers(reply.body, expected)
            if reply.status in BUSY:
                raise BadReplyError(f"status {reply.status}", reply.retry_after)
            if reply.status == 404:
                return []
            url = self._server.base_url
            raise ServerRefusedError(f"{url} refuses: status {reply.status} {reply.text}".rstrip())

        answers = self._server.retry(once)
        if not answers:
            raise _UnknownModelError(f"{self._server.base_url} has no model {name}")
        return answers

    def _group(
        self, request: GenerationRequest, question: Question, answers: Mapping[int, Answer]
    ) -> OwnGroup:
        policy = request.policy
        return OwnGroup(
            question=question,
            # Games end in any order; a repeated round must have the same order.
            answers=tuple(answers[place] for place in sorted(answers)),
            origin=Origin.FOLLOWER,
            author=PolicyInfo(
                model_name=public_model_name(policy.name),
                tokenizer_digest=policy.tokenizer_digest,
                policy_version=self._version,
            ),
        )

    def _log_missing(self, faults: Counter[str], num_found: int) -> None:
        if not faults:
            return
        [(reason, _)] = faults.most_common(1)
        if num_found:
            log.warning("%d questions got no answers: %s", faults.total(), reason)
        else:
            log.warning("no answers: %s; this round trains on external groups only", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompletionRequest:
    """One request: a question's first answers, or the next message of one game."""

    number: int
    """Index of the question in the request."""
    prompt: Sequence[int]
    num_completions: int
    seed: str
    game: PlayedGame | None = None


def _games(question: Question, completion: _CompletionRequest, count: int) -> list[PlayedGame]:
    """Return the games that begin with the answers to a request."""
    first = completion.number * completion.num_completions
    return [
        PlayedGame(question=question, prompt=completion.prompt, place=first + one)
        for one in range(count)
    ]


def _next_message(request: GenerationRequest, number: int, game: PlayedGame) -> _CompletionRequest:
    # Each game has its own seed, since two games may have the same conversation.
    return _CompletionRequest(
        number=number,
        prompt=[*game.prompt, *game.ids],
        num_completions=1,
        seed=str(message_seed(request.seed, game.place, len(game.messages))),
        game=game,
    )


def _with_text(policy: Policy, one: Answer) -> Answer:
    return replace(one, text=decode_completion(policy, one.ids))


def _document(sampling: SamplingParams, expected: ExpectedReply, seed: str) -> dict[str, Any]:
    """Return a completions request for vLLM's OpenAI-compatible server."""
    document: dict[str, Any] = {
        "model": expected.model,
        "prompt": list(expected.prompt_ids),
        "n": expected.num_completions,
        "max_tokens": expected.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") >> 1,
        "stop_token_ids": sorted(expected.eos_ids),
        "logprobs": 1,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }
    return document | ({"top_k": sampling.top_k} if sampling.top_k else {})


def build_vllm_generator(
    settings: Settings, should_stop: Callable[[], bool]
) -> Callable[[Policy], VllmGenerator]:
    """Return a factory of the configured generator, without contacting the server.

    Raises ServerRefusedError for an address that cannot be used.
    """
    url = settings.base_url
    if not has_version(url):
        settings = settings.model_copy(update={"base_url": f"{base_address(url)}/v1"})
    server = build_server(settings, should_stop)
    folder = settings.data_dir / "served"

    def make(policy: Policy) -> VllmGenerator:
        pusher: Pusher = FullWeightsPusher(server, folder, remote_model(settings))
        if policy.adapter is not None:
            pusher = AdapterPusher(server, folder)
        return VllmGenerator(server, pusher)

    return make
