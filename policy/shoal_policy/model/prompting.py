"""Questions to prompt tokens, and external answers to completion tokens.

Token ids never cross the wire: nodes exchange text, and each re-encodes external text with its own
tokenizer, as if its own policy had generated it (SAPO, section 3.2). External questions and answers
are plain text: they never produce special tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypedDict

from jinja2 import TemplateError

from shoal_policy.model.end_tokens import end_position
from shoal_policy.model.loading import ANSWER_TOKEN, Policy, PromptFormat, PromptTokenizer
from shoal_policy.rollouts import OwnGroup, Question
from shoal_tasks.prompts import Example, instruction, messages_for, plain_prompt
from shoal_wire.types import FinishReason

_PLACEHOLDER = "question-4f1d0c6b9e7a"
"""Stands for a question while the surrounding text is rendered; no question has it by chance."""


def prompt_ids(policy: Policy, question: Question) -> list[int]:
    """Return a question's prompt as token ids, with the family's worked examples if any."""
    return text_prompt_ids(
        policy,
        question.task.family,
        question.text,
        tagged=question.tagged,
        system=question.system,
    )


def text_prompt_ids(
    policy: Policy, family: str, text: str, *, tagged: bool, system: str = ""
) -> list[int]:
    """Return the same from text; without examples if these leave no room for an answer."""
    examples = policy.few_shot.of(family, text)
    ids = encode_prompt(policy, text, tagged=tagged, system=system, examples=examples)
    if examples and len(ids) >= policy.max_positions:
        return encode_prompt(policy, text, tagged=tagged, system=system)
    return ids


def encode_prompt(
    policy: PromptTokenizer,
    question: str,
    *,
    tagged: bool = False,
    system: str = "",
    examples: Sequence[Example] = (),
) -> list[int]:
    """Return the prompt's token ids, never empty.

    `tagged` asks for the answer between ``<answer>`` tags, for families that are scored that way;
    `system` is the family's system message. The embedded model ignores both, and `examples`.
    """
    form = _PromptOptions(tagged=tagged, system=system)
    tokenizer = policy.tokenizer
    match policy.prompt_format:
        case PromptFormat.TINY:
            start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
            end = tokenizer.convert_tokens_to_ids(ANSWER_TOKEN)
            return [*start, *encode_text(policy, question), end]
        case PromptFormat.CHAT:
            return _chat_ids(policy, question, form, examples)
        case PromptFormat.PLAIN:
            return _plain_ids(policy, question, form, examples)


def encode_completion(policy: Policy, text: str, finish_reason: FinishReason) -> list[int]:
    """Return the token ids of an external completion; may be empty for truncated empty text.

    The end token is appended exactly if the other policy generated one: it is trained on like any
    token, and a truncated completion must not teach the policy to stop there.
    """
    ids = encode_text(policy, text)
    return [*ids, policy.eos_id] if finish_reason is FinishReason.STOP else ids


def encode_text(policy: PromptTokenizer, text: str) -> list[int]:
    """Return the token ids of untrusted text, without special tokens.

    Names of special tokens are encoded as ordinary characters; otherwise a peer could write an end
    token, or a chat turn, into the middle of an answer.
    """
    return list(_encoded(policy.tokenizer, text))


# A question is encoded twice, to generate and to train. About two rounds of texts: a guess.
@lru_cache(maxsize=256)
def _encoded(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


def observation_ids(policy: PromptTokenizer, observation: str) -> list[int]:
    """Return the token ids between two messages of the policy: the environment's observation.

    Cut out of the model's template, rendered with placeholders. Sampled tokens are never rendered
    again, so a template that rewrites history (Qwen3 removes thinking) changes nothing here. The
    end token of the message before is not included, since it was sampled.
    """
    if policy.prompt_format is PromptFormat.TINY:
        end = policy.tokenizer.convert_tokens_to_ids(ANSWER_TOKEN)
        return [*encode_text(policy, observation), end]
    place, placed, texts = _make_placeholders(observation, [Example(question="", answer="")])
    form = _PromptOptions(tagged=False, system="")
    if policy.prompt_format is PromptFormat.PLAIN:
        text = plain_prompt(place, **form, examples=placed)
    else:
        text = str(_renderer(policy)(messages_for(place, **form, examples=placed), tokenize=False))
    parts = _split_at_placeholders(text, texts)
    ids = _encode_parts(policy, parts[parts.index(placed[0].answer) + 1 :], texts)
    end = end_position(policy.tokenizer, ids, policy.eos_ids)
    return ids if end is None else ids[end + 1 :]


def decode_completion(policy: Policy, ids: Sequence[int]) -> str:
    """Return the text of a sampled completion, without its final end token.

    Other special tokens stay visible: a verifier scores exactly what was sampled.
    """
    body = list(ids[:-1] if ids and ids[-1] in policy.eos_ids else ids)
    return str(
        policy.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    )


class _PromptOptions(TypedDict):
    """Options of a family's prompt, apart from question and examples."""

    tagged: bool
    system: str


def _plain_ids(
    policy: PromptTokenizer, question: str, form: _PromptOptions, examples: Sequence[Example]
) -> list[int]:
    tokenizer = policy.tokenizer
    if not _any_contains_special(policy, question, examples):
        text = plain_prompt(question, **form, examples=examples)
        return _strip_end_tokens(policy, tokenizer(text)["input_ids"])
    place, placed, texts = _make_placeholders(question, examples)
    first, *others = _split_at_placeholders(plain_prompt(place, **form, examples=placed), texts)
    ids = _strip_end_tokens(policy, tokenizer(first)["input_ids"])
    return [*ids, *_encode_parts(policy, others, texts)]


def _strip_end_tokens(policy: PromptTokenizer, ids: Sequence[int]) -> list[int]:
    """Return a prompt's tokens without end tokens, which some tokenizers append to any text."""
    kept = list(ids)
    while kept and kept[-1] in policy.eos_ids:
        kept.pop()
    return kept


def _chat_ids(
    policy: PromptTokenizer, question: str, form: _PromptOptions, examples: Sequence[Example]
) -> list[int]:
    try:
        return _render_chat(policy, question, form, examples)
    except TemplateError:
        before = instruction(**form)
        if not before:
            raise
        # Some templates (Gemma's) reject a system message.
        bare = _PromptOptions(tagged=False, system="")
        return _render_chat(policy, question, bare, examples, before=f"{before}\n\n")


def _render_chat(
    policy: PromptTokenizer,
    question: str,
    form: _PromptOptions,
    examples: Sequence[Example],
    before: str = "",
) -> list[int]:
    render = _renderer(policy)

    def turns(question: str, shown: Sequence[Example]) -> list[dict[str, str]]:
        first, *others = messages_for(question, **form, examples=shown)
        return [{**first, "content": before + first["content"]}, *others]

    if not _any_contains_special(policy, question, examples):
        return list(render(turns(question, examples), tokenize=True, return_dict=False))
    # The template's own turns become tokens; special names inside the question stay text.
    place, placed, texts = _make_placeholders(question, examples)
    text = str(render(turns(place, placed), tokenize=False))
    return _encode_parts(policy, _split_at_placeholders(text, texts), texts)


def _renderer(policy: PromptTokenizer) -> Callable[..., Any]:
    # Without this flag, templates such as Qwen3's would fill every answer with thinking; other
    # templates ignore it.
    return partial(
        policy.tokenizer.apply_chat_template, add_generation_prompt=True, enable_thinking=False
    )


def _make_placeholders(
    question: str, examples: Sequence[Example]
) -> tuple[str, list[Example], dict[str, str]]:
    """Return placeholders for a question and its examples, and the text of each."""
    texts = {_PLACEHOLDER: question}
    for number, one in enumerate(examples):
        texts[f"{_PLACEHOLDER}-q{number}-"] = one.question
        texts[f"{_PLACEHOLDER}-a{number}-"] = one.answer
    names = list(texts)[1:]
    placed = [
        Example(question=name, answer=answer)
        for name, answer in zip(names[::2], names[1::2], strict=True)
    ]
    return _PLACEHOLDER, placed, texts


def _split_at_placeholders(form: str, texts: Mapping[str, str]) -> list[str]:
    """Split rendered text at its placeholders, which become parts of their own."""
    # Longest first: the question's placeholder is a prefix of the others.
    places = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    return re.split(f"({places})", form)


def _encode_parts(
    policy: PromptTokenizer, parts: Sequence[str], texts: Mapping[str, str]
) -> list[int]:
    ids: list[int] = []
    for part in parts:
        if part in texts:
            ids += encode_text(policy, texts[part])
        else:
            ids += policy.tokenizer(part, add_special_tokens=False)["input_ids"]
    return ids


def _any_contains_special(
    policy: PromptTokenizer, question: str, examples: Sequence[Example]
) -> bool:
    texts = [question, *(text for one in examples for text in (one.question, one.answer))]
    return any(_contains_special(policy, text) for text in texts)


def _contains_special(policy: PromptTokenizer, text: str) -> bool:
    """Return whether a text contains the name of a special token."""
    as_tokens = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
    return list(as_tokens) != encode_text(policy, text)


def reencode(policy: Policy, group: OwnGroup) -> OwnGroup:
    """Return another program's answers with the policy's token ids, to train on.

    Their log-probabilities belong to other tokens and are dropped. An empty answer without an end
    has no ids: it is not trained on, but its reward counts like any other.
    """
    answers = [
        replace(
            answer,
            ids=tuple(encode_completion(policy, answer.text, answer.finish_reason)),
            logprobs=(),
        )
        for answer in group.answers
    ]
    return replace(group, answers=tuple(answers))
