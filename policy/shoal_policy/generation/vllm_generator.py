"""Answers from a vLLM server whose weights follow the policy's.

    version behind? ─▶ push weights ─▶ compare ─▶ POST /v1/completions, token ids in, n = L
         └ cannot, or differs: no question is asked; the round has the groups of others alone

A game's later messages are asked for one by one, behind the tokens of all before: each game at its
own pace. What the server has computed of a conversation it finds again by its prefix cache.

Every answer is stamped with the version that made it. What the server says of its tokens'
log-probabilities weighs them in the update (truncated importance sampling): its arithmetic is
another than the policy's.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal_policy.generation.game import PlayedGame, go_on, message_seed
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.probe import bound, difference, probing
from shoal_policy.generation.questions import askable
from shoal_policy.generation.remote import remote_model, server_of
from shoal_policy.generation.replies import BadReplyError, ExpectedReply, read_token_answers
from shoal_policy.generation.requests import (
    BUSY,
    InferenceServer,
    Parallel,
    ServerRefusedError,
    said,
)
from shoal_policy.generation.served_weights import AdapterPusher, Pusher, WholePusher
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.prompting import decode_completion
from shoal_policy.rollouts import Answer, Origin, OwnGroup, Question, public_model_name
from shoal_settings.schema import Settings
from shoal_wire.types import PolicyInfo, SamplingParams

log = logging.getLogger(__name__)

_PASSES = 2
"""Times that questions are asked: a server that has restarted is given the weights once more."""


class _UnknownModelError(BadReplyError):
    """The server does not have the weights that were asked for."""


class VllmGenerator:
    """A `Generator` over a server that follows. One caller at a time."""

    def __init__(self, server: InferenceServer, pusher: Pusher) -> None:
        self._server, self._pusher = server, pusher
        self._name, self._version = "", -1
        self._answered = False
        self.server_logp_difference: float | None = None
        """See `Generator`."""

    def answer(self, asking: GenerationRequest) -> list[OwnGroup]:
        """See `Generator`. A question with fewer than two answers is left out.

        Raises ModelError when the server refuses and has never answered before.
        """
        questions, prompts = askable(asking.policy, asking.questions)
        found: dict[int, dict[int, Answer]] = {}
        faults: Counter[str] = Counter()
        for _ in range(_PASSES):
            try:
                if self._follow(asking):
                    found.clear()  # a round's answers are of one version, and stamped with it
                missing = [number for number in range(len(prompts)) if number not in found]
                again, faults = self._ask(asking, questions, prompts, missing, found)
            except (BadReplyError, ServerRefusedError) as error:
                if isinstance(error, ServerRefusedError) and not self._answered:
                    raise ModelError(str(error)) from None
                again, faults = isinstance(error, _UnknownModelError), Counter([said(error)])
            if not again or self._server.should_stop():
                break
        self._say_missing(faults, len(found))
        return [
            self._group(asking, questions[number], found[number])
            for number in sorted(found)
            if len(found[number]) > 1
        ]

    def _follow(self, asking: GenerationRequest) -> bool:
        """Give the server the policy's weights where its own are others; return whether it has
        others than it answered with before."""
        if self._name and asking.policy_version == self._version:
            return False
        self._name, before = "", self._version
        name = self._pusher.push(asking.policy, asking.policy_version)
        self._check(asking, name)
        self._name, self._version = name, asking.policy_version
        return before != self._version

    def _check(self, asking: GenerationRequest, name: str) -> None:
        """Compare the weights that the server answers with, by that name, to the policy's own.

        Raises RemoteError when they are others, Fault when the server does not say.
        """
        asked, prompt = probing(asking)
        errand = _Errand(
            number=0,
            prompt=prompt,
            num_completions=asked.num_completions,
            seed=f"{asked.seed}/{prompt}",
        )
        answers = self._request(asked, errand, name)
        temperature = asked.sampling.temperature
        self.server_logp_difference = difference(asking.policy, prompt, answers, temperature)
        url, remedy = self._server.base_url, self._pusher.remedy
        if self.server_logp_difference is None:
            raise ServerRefusedError(
                f"{url} gives no usable log-probabilities of its tokens: {remedy}"
            )
        if self.server_logp_difference > bound(temperature):
            raise ServerRefusedError(
                f"{url} does not follow the policy: its log-probabilities are "
                f"{self.server_logp_difference:.2g} nats a token from the policy's, "
                f"over {bound(temperature):.2g}: {remedy}"
            )

    def _ask(
        self,
        asking: GenerationRequest,
        questions: Sequence[Question],
        prompts: Sequence[Sequence[int]],
        missing: Sequence[int],
        found: dict[int, dict[int, Answer]],
    ) -> tuple[bool, Counter[str]]:
        """Ask what is missing; return whether the server lacks the weights, and what went wrong."""
        faults: Counter[str] = Counter()
        lacks, total = False, len(prompts) * asking.num_completions
        asked: Parallel[_Errand, list[Answer]] = self._server.parallel(
            lambda errand: self._request(asking, errand, self._name)
        )
        for number in missing:
            first = _Errand(
                number=number,
                prompt=prompts[number],
                num_completions=asking.num_completions,
                seed=f"{asking.seed}/{list(prompts[number])}",
            )
            asked.add(first)
        for errand, outcome in asked.outcomes():
            if isinstance(outcome, Exception):
                faults[said(outcome)] += 1
                lacks = lacks or isinstance(outcome, _UnknownModelError)
                if isinstance(outcome, ServerRefusedError) and not self._answered:
                    raise outcome
                continue
            self._answered = True
            question = questions[errand.number]
            samples = [_with_text(asking.policy, one) for one in outcome]
            over = found.setdefault(errand.number, {})
            if not question.max_turns:
                over |= enumerate(samples)
            else:
                games = [errand.game] if errand.game else _games(question, errand, len(samples))
                for game, sample in zip(games, samples, strict=True):
                    game.add_message(asking.policy, sample)
                for game in go_on(asking.policy, games, asking.play):
                    asked.add(_next_message(asking, errand.number, game))
                over |= {game.place: game.answer() for game in games if game.ended is not None}
            done = sum(map(len, found.values()))
            asking.on_step(done, min(1.0, done / total))
        if lacks:
            self._name = ""
        return lacks, faults

    def _request(self, asking: GenerationRequest, errand: _Errand, name: str) -> list[Answer]:
        policy, prompt = asking.policy, errand.prompt
        wanted = ExpectedReply(
            model=name,
            prompt_ids=prompt,
            num_completions=errand.num_completions,
            max_tokens=min(asking.sampling.max_new_tokens, policy.max_positions - len(prompt)),
            vocabulary=int(policy.model.config.get_text_config().vocab_size),
            eos_ids=policy.eos_ids,
        )
        document = _document(asking.sampling, wanted, errand.seed)

        def once() -> list[Answer]:
            address = f"{self._server.base_url}/completions"
            reply = self._server.post(address, document, wanted.max_bytes)
            if reply.status == 200:
                return read_token_answers(reply.body, wanted)
            if reply.status in BUSY:
                raise BadReplyError(f"status {reply.status}", reply.retry_after)
            if reply.status == 404:
                return []
            url = self._server.base_url
            raise ServerRefusedError(f"{url} refuses: status {reply.status} {reply.said}".rstrip())

        answers = self._server.persist(once)
        if not answers:
            raise _UnknownModelError(f"{self._server.base_url} has no model {name}")
        return answers

    def _group(
        self, asking: GenerationRequest, question: Question, answers: Mapping[int, Answer]
    ) -> OwnGroup:
        policy = asking.policy
        return OwnGroup(
            question=question,
            # Games end in any order; a round that is played again has them in the same.
            answers=tuple(answers[place] for place in sorted(answers)),
            origin=Origin.FOLLOWER,
            author=PolicyInfo(
                model_name=public_model_name(policy.name),
                tokenizer_digest=policy.tokenizer_digest,
                policy_version=self._version,
            ),
        )

    def _say_missing(self, faults: Counter[str], num_found: int) -> None:
        if not faults:
            return
        [(reason, _)] = faults.most_common(1)
        if num_found:
            log.warning("%d questions are without answers: %s", faults.total(), reason)
        else:
            log.warning("no answers: %s; this round has the groups of others alone", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errand:
    """One request: a question's first answers, or the next message of one game."""

    number: int
    """The question's place among all that are asked."""
    prompt: Sequence[int]
    num_completions: int
    seed: str
    game: PlayedGame | None = None


def _games(question: Question, errand: _Errand, count: int) -> list[PlayedGame]:
    """Return the games that begin with the answers to an errand."""
    first = errand.number * errand.num_completions
    return [
        PlayedGame(question=question, prompt=errand.prompt, place=first + one)
        for one in range(count)
    ]


def _next_message(asking: GenerationRequest, number: int, game: PlayedGame) -> _Errand:
    # Each game has its own seed: two may have come to the same conversation.
    return _Errand(
        number=number,
        prompt=[*game.prompt, *game.ids],
        num_completions=1,
        seed=str(message_seed(asking.seed, game.place, len(game.messages))),
        game=game,
    )


def _with_text(policy: Policy, one: Answer) -> Answer:
    return replace(one, text=decode_completion(policy, one.ids))


def _document(sampling: SamplingParams, wanted: ExpectedReply, seed: str) -> dict[str, Any]:
    """A request for completions, by vLLM's OpenAI-compatible server."""
    document: dict[str, Any] = {
        "model": wanted.model,
        "prompt": list(wanted.prompt_ids),
        "n": wanted.num_completions,
        "max_tokens": wanted.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") >> 1,
        "stop_token_ids": sorted(wanted.eos_ids),
        "logprobs": 1,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }
    return document | ({"top_k": sampling.top_k} if sampling.top_k else {})


def following(
    settings: Settings, should_stop: Callable[[], bool]
) -> Callable[[Policy], VllmGenerator]:
    """Return what makes the generator that settings ask for; nothing is asked of the server yet.

    Raises RemoteError for an address that cannot be used.
    """
    server = server_of(settings, should_stop)
    folder = settings.data_dir / "served"

    def make(policy: Policy) -> VllmGenerator:
        pusher: Pusher = WholePusher(server, folder, remote_model(settings))
        if policy.adapter is not None:
            pusher = AdapterPusher(server, folder)
        return VllmGenerator(server, pusher)

    return make
