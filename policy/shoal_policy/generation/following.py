"""Answers from a vLLM server whose weights follow the policy's.

    version behind? ─▶ push weights ─▶ compare ─▶ POST /v1/completions, token ids in, n = L
         └ cannot, or differs: no question is asked; the round has the groups of others alone

Every answer is stamped with the version that made it. What the server says of its tokens'
log-probabilities weighs them in the update (truncated importance sampling): its arithmetic is
another than the policy's.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from shoal_policy.generation.probe import bound, difference, probing
from shoal_policy.generation.questions import Askable
from shoal_policy.generation.remote import remote_model
from shoal_policy.generation.remote_replies import Fault
from shoal_policy.generation.requests import BUSY, RemoteError, Server, in_parallel, said
from shoal_policy.generation.seam import Asking
from shoal_policy.generation.served_weights import AdapterPusher, Pusher, WholePusher
from shoal_policy.generation.token_replies import TokenAnswer, Wanted, read_token_answers
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.prompting import decode_completion
from shoal_policy.rollouts import Answer, Origin, OwnGroup, Question, public_model_name
from shoal_settings.schema import Settings
from shoal_settings.trainer_settings import API_KEY_VARIABLE
from shoal_wire.types import PolicyInfo

log = logging.getLogger(__name__)

_PASSES = 2
"""Times that questions are asked: a server that has restarted is given the weights once more."""


class _UnknownModelError(Fault):
    """The server does not have the weights that were asked for."""


class Following:
    """A `Generator` over a server that follows. One caller at a time."""

    def __init__(
        self,
        policy: Policy,
        server: Server,
        pusher: Pusher,
        *,
        at_once: int,
        should_stop: Callable[[], bool],
    ) -> None:
        """`at_once` is how many requests it sends at the same time."""
        self._askable = Askable(policy)
        self._server, self._pusher = server, pusher
        self._at_once, self._should_stop = at_once, should_stop
        self._name, self._version = "", -1
        self._answered = False
        self.server_difference: float | None = None
        """See `Generator`."""

    def answer(self, asking: Asking) -> list[OwnGroup]:
        """See `Generator`. A question with fewer than two answers is left out.

        Raises ModelError when the server refuses and has never answered before.
        """
        questions, prompts = self._askable(asking.questions)
        found: dict[int, list[TokenAnswer]] = {}
        faults: Counter[str] = Counter()
        for _ in range(_PASSES):
            try:
                if self._follow(asking):
                    found.clear()  # a round's answers are of one version, and stamped with it
                missing = [number for number in range(len(prompts)) if number not in found]
                again, faults = self._ask(asking, prompts, missing, found)
            except (Fault, RemoteError) as error:
                if isinstance(error, RemoteError) and not self._answered:
                    raise ModelError(str(error)) from None
                again, faults = isinstance(error, _UnknownModelError), Counter([said(error)])
            if not again or self._should_stop():
                break
        self._say_missing(faults, len(found))
        return [
            self._group(asking, questions[number], found[number])
            for number in sorted(found)
            if len(found[number]) > 1
        ]

    def _follow(self, asking: Asking) -> bool:
        """Give the server the policy's weights where its own are others; return whether it has
        others than it answered with before."""
        if self._name and asking.policy_version == self._version:
            return False
        self._name, before = "", self._version
        name = self._pusher.push(asking.policy, asking.policy_version)
        self._check(asking, name)
        self._name, self._version = name, asking.policy_version
        return before != self._version

    def _check(self, asking: Asking, name: str) -> None:
        """Compare the weights that the server answers with, by that name, to the policy's own.

        Raises RemoteError when they are others, Fault when the server does not say.
        """
        asked, prompt = probing(asking)
        answers = self._request(asked, prompt, name)
        temperature = asked.sampling.temperature
        self.server_difference = difference(asking.policy, prompt, answers, temperature)
        url, remedy = self._server.base_url, self._pusher.remedy
        if self.server_difference is None:
            raise RemoteError(f"{url} gives no usable log-probabilities of its tokens: {remedy}")
        if self.server_difference > bound(temperature):
            raise RemoteError(
                f"{url} does not follow the policy: its log-probabilities are "
                f"{self.server_difference:.2g} nats a token from the policy's, "
                f"over {bound(temperature):.2g}: {remedy}"
            )

    def _ask(
        self,
        asking: Asking,
        prompts: Sequence[Sequence[int]],
        missing: Sequence[int],
        found: dict[int, list[TokenAnswer]],
    ) -> tuple[bool, Counter[str]]:
        """Ask what is missing; return whether the server lacks the weights, and what went wrong."""
        faults: Counter[str] = Counter()
        lacks, total = False, len(prompts) * asking.num_completions
        outcomes = in_parallel(
            len(missing),
            lambda place: self._request(asking, prompts[missing[place]], self._name),
            at_once=self._at_once,
            should_stop=self._should_stop,
        )
        for place, outcome in outcomes:
            if isinstance(outcome, Exception):
                faults[said(outcome)] += 1
                lacks = lacks or isinstance(outcome, _UnknownModelError)
                if isinstance(outcome, RemoteError) and not self._answered:
                    raise outcome
                continue
            found[missing[place]] = outcome
            self._answered = True
            done = sum(map(len, found.values()))
            asking.on_step(done, min(1.0, done / total))
        if lacks:
            self._name = ""
        return lacks, faults

    def _request(self, asking: Asking, prompt: Sequence[int], name: str) -> list[TokenAnswer]:
        policy = asking.policy
        wanted = Wanted(
            model=name,
            prompt_ids=prompt,
            num_completions=asking.num_completions,
            max_tokens=min(asking.sampling.max_new_tokens, policy.max_positions - len(prompt)),
            vocabulary=int(policy.model.config.get_text_config().vocab_size),
            eos_ids=policy.eos_ids,
        )
        document = _document(asking, wanted)

        def once() -> list[TokenAnswer]:
            address = f"{self._server.base_url}/completions"
            reply = self._server.post(address, document, wanted.max_bytes)
            if reply.status == 200:
                return read_token_answers(reply.body, wanted)
            if reply.status in BUSY:
                raise Fault(f"status {reply.status}", reply.retry_after)
            if reply.status == 404:
                return []
            url = self._server.base_url
            raise RemoteError(f"{url} refuses: status {reply.status} {reply.said}".rstrip())

        answers = self._server.persist(once)
        if not answers:
            raise _UnknownModelError(f"{self._server.base_url} has no model {name}")
        return answers

    def _group(
        self, asking: Asking, question: Question, answers: Sequence[TokenAnswer]
    ) -> OwnGroup:
        policy = asking.policy
        return OwnGroup(
            question=question,
            answers=tuple(
                Answer(
                    ids=one.ids,
                    text=decode_completion(policy, list(one.ids)),
                    finish_reason=one.finish_reason,
                    logprobs=one.logprobs,
                )
                for one in answers
            ),
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


def _document(asking: Asking, wanted: Wanted) -> dict[str, Any]:
    """A request for completions, by vLLM's OpenAI-compatible server."""
    sampling = asking.sampling
    text = f"{asking.seed}/{list(wanted.prompt_ids)}"
    document: dict[str, Any] = {
        "model": wanted.model,
        "prompt": list(wanted.prompt_ids),
        "n": wanted.num_completions,
        "max_tokens": wanted.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1,
        "stop_token_ids": sorted(wanted.eos_ids),
        "logprobs": 1,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }
    return document | ({"top_k": sampling.top_k} if sampling.top_k else {})


def following(settings: Settings, should_stop: Callable[[], bool]) -> Callable[[Policy], Following]:
    """Return what makes the generator that settings ask for; nothing is asked of the server yet.

    Raises RemoteError for an address that cannot be used.
    """
    server = Server(
        settings.base_url,
        api_key=os.environ.get(API_KEY_VARIABLE) or None,
        connections=settings.concurrency,
        should_stop=should_stop,
    )
    folder = settings.data_dir / "served"

    def make(policy: Policy) -> Following:
        pusher: Pusher = WholePusher(server, folder, remote_model(settings))
        if policy.adapter is not None:
            pusher = AdapterPusher(server, folder)
        return Following(
            policy,
            server,
            pusher,
            at_once=settings.concurrency,
            should_stop=should_stop,
        )

    return make
