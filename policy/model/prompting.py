"""Questions to prompt tokens, and other nodes' answers to completion tokens.

Token ids never cross the wire: every node speaks of text, and re-encodes another node's text
with its own tokenizer, as if its own policy had produced it (SAPO, section 3.2). Others' questions
and answers are text whatever they say: no special token comes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from jinja2 import TemplateError

from policy.model.loading import ANSWER_TOKEN, Policy, PromptFormat
from policy.rollouts import OwnGroup
from shoal_tasks.prompts import TAGGED_INSTRUCTION, messages_for, plain_prompt
from shoal_wire.types import FinishReason

_PLACE = "question-4f1d0c6b9e7a"
"""Stands for a question while the text around it is made; none has it by chance."""


def encode_prompt(policy: Policy, question: str, *, tagged: bool = False) -> list[int]:
    """The prompt's token ids, never empty.

    `tagged` asks for the answer between ``<answer>`` tags, for families that are scored so;
    the embedded model answers without tags and ignores it.
    """
    tokenizer = policy.tokenizer
    match policy.prompt_format:
        case PromptFormat.TINY:
            start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
            end = tokenizer.convert_tokens_to_ids(ANSWER_TOKEN)
            return [*start, *encode_text(policy, question), end]
        case PromptFormat.CHAT:
            return _chat_ids(policy, question, tagged)
        case PromptFormat.PLAIN:
            return _plain_ids(policy, question, tagged)


def encode_completion(policy: Policy, text: str, finish_reason: FinishReason) -> list[int]:
    """Token ids of another node's completion; may be empty for empty text that was cut.

    The end token is appended exactly when the generator's policy emitted one: it is trained
    like any other token, and a cut completion must not teach the policy to stop there.
    """
    ids = encode_text(policy, text)
    return [*ids, policy.eos_id] if finish_reason is FinishReason.STOP else ids


def encode_text(policy: Policy, text: str) -> list[int]:
    """Token ids of untrusted text, with no special token among them.

    Names of special tokens in the text are encoded as the characters they are: else a
    peer could write an end token, or a turn of the chat, into the middle of an answer.
    """
    encoded = policy.tokenizer(text, add_special_tokens=False, split_special_tokens=True)
    return list(encoded["input_ids"])


def decode_completion(policy: Policy, ids: list[int]) -> str:
    """The text of a sampled completion, without the end token that closes it.

    Other special tokens stay visible in the text: what a verifier scores is what was sampled.
    """
    body = ids[:-1] if ids and ids[-1] in policy.eos_ids else ids
    return str(
        policy.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    )


def _plain_ids(policy: Policy, question: str, tagged: bool) -> list[int]:
    if _names_special(policy, question):
        before, after = plain_prompt(_PLACE, tagged=tagged).split(_PLACE)
        ids = _open(policy, policy.tokenizer(before)["input_ids"])
        rest = policy.tokenizer(after, add_special_tokens=False)["input_ids"]
        return [*ids, *encode_text(policy, question), *rest]
    return _open(policy, policy.tokenizer(plain_prompt(question, tagged=tagged))["input_ids"])


def _open(policy: Policy, ids: Sequence[int]) -> list[int]:
    """Without an end: some tokenizers close every text, and a prompt must stay open."""
    kept = list(ids)
    while kept and kept[-1] in policy.eos_ids:
        kept.pop()
    return kept


def _chat_ids(policy: Policy, question: str, tagged: bool) -> list[int]:
    try:
        return _apply(policy, question, tagged)
    except TemplateError:
        if not tagged:
            raise
        # Some templates (Gemma's) refuse a system turn.
        return _apply(policy, question, tagged=False, before=f"{TAGGED_INSTRUCTION}\n\n")


def _apply(policy: Policy, question: str, tagged: bool, before: str = "") -> list[int]:
    render = partial(policy.tokenizer.apply_chat_template, add_generation_prompt=True)
    if not _names_special(policy, question):
        messages = messages_for(before + question, tagged=tagged)
        return list(render(messages, tokenize=True, return_dict=False))
    # The template's own turns are tokens, what the question calls so is text.
    form = render(messages_for(before + _PLACE, tagged=tagged), tokenize=False)
    asked = encode_text(policy, question)
    first, *others = (
        list(policy.tokenizer(part, add_special_tokens=False)["input_ids"])
        for part in str(form).split(_PLACE)
    )
    return [*first, *(one for part in others for one in (*asked, *part))]


def _names_special(policy: Policy, text: str) -> bool:
    """Whether a text has the name of a special token in it."""
    as_tokens = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
    return list(as_tokens) != encode_text(policy, text)


def reencode(policy: Policy, group: OwnGroup) -> OwnGroup | None:
    """Another program's answers with the policy's own token ids, to train on.

    Its log-probabilities belong to its own tokens and are dropped. None when fewer than two
    answers have any token.
    """
    answers = [
        replace(answer, ids=tuple(ids), logprobs=())
        for answer in group.answers
        if (ids := encode_completion(policy, answer.text, answer.finish_reason))
    ]
    return replace(group, answers=tuple(answers)) if len(answers) > 1 else None
