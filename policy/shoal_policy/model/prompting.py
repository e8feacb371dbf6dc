"""Questions to prompt tokens, and other nodes' answers to completion tokens.

Token ids never cross the wire: every node speaks of text, and re-encodes another node's text
with its own tokenizer, as if its own policy had produced it (SAPO, section 3.2). Others' questions
and answers are text whatever they say: no special token comes of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypedDict

from jinja2 import TemplateError

from shoal_policy.model.loading import ANSWER_TOKEN, Policy, PromptFormat, Reader
from shoal_policy.rollouts import OwnGroup, Question
from shoal_tasks.prompts import Example, instruction, messages_for, plain_prompt
from shoal_wire.types import FinishReason

_PLACE = "question-4f1d0c6b9e7a"
"""Stands for a question while the text around it is made; none has it by chance."""


def prompt_ids(policy: Policy, question: Question) -> list[int]:
    """A question's token ids as this policy is asked: with the family's worked examples, if any."""
    return ids_of_text(
        policy,
        question.task.family,
        question.text,
        tagged=question.tagged,
        system=question.system,
    )


def ids_of_text(
    policy: Policy, family: str, text: str, *, tagged: bool, system: str = ""
) -> list[int]:
    """The same of a question's text. Without examples where they leave no room for an answer."""
    examples = policy.shots.of(family, text)
    ids = encode_prompt(policy, text, tagged=tagged, system=system, examples=examples)
    if examples and len(ids) >= policy.max_positions:
        return encode_prompt(policy, text, tagged=tagged, system=system)
    return ids


def encode_prompt(
    policy: Reader,
    question: str,
    *,
    tagged: bool = False,
    system: str = "",
    examples: Sequence[Example] = (),
) -> list[int]:
    """Return the prompt's token ids, never empty.

    `tagged` asks for the answer between ``<answer>`` tags, for families that are scored so, and
    `system` is the family's own system turn. The embedded model ignores both, and `examples` too.
    """
    form = _Form(tagged=tagged, system=system)
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
    """Token ids of another node's completion; may be empty for empty text that was cut.

    The end token is appended exactly when the generator's policy emitted one: it is trained
    like any other token, and a cut completion must not teach the policy to stop there.
    """
    ids = encode_text(policy, text)
    return [*ids, policy.eos_id] if finish_reason is FinishReason.STOP else ids


def encode_text(policy: Reader, text: str) -> list[int]:
    """Token ids of untrusted text, with no special token among them.

    Names of special tokens in the text are encoded as the characters they are: else a
    peer could write an end token, or a turn of the chat, into the middle of an answer.
    """
    return list(_encoded(policy.tokenizer, text))


# What is asked is trained on in the same round. Some two rounds' texts: a guess.
@lru_cache(maxsize=256)
def _encoded(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


def turn_ids(policy: Reader, observation: str) -> list[int]:
    """Token ids between a message of the policy and its next one: what the environment said.

    As the model's template writes it, in the rendering of a conversation of stand-ins. Nothing that
    was sampled is rendered again, so a template that rewrites history (Qwen3's takes thinking out)
    changes nothing here. The end token of the message before is not among them: it was sampled.
    """
    if policy.prompt_format is PromptFormat.TINY:
        end = policy.tokenizer.convert_tokens_to_ids(ANSWER_TOKEN)
        return [*encode_text(policy, observation), end]
    place, placed, texts = _placed(observation, [Example(question="", answer="")])
    form = _Form(tagged=False, system="")
    if policy.prompt_format is PromptFormat.PLAIN:
        text = plain_prompt(place, **form, examples=placed)
    else:
        text = str(_renderer(policy)(messages_for(place, **form, examples=placed), tokenize=False))
    parts = _parts(text, texts)
    ids = _ids_of_parts(policy, parts[parts.index(placed[0].answer) + 1 :], texts)
    return ids[1:] if ids and ids[0] in policy.eos_ids else ids


def decode_completion(policy: Policy, ids: Sequence[int]) -> str:
    """The text of a sampled completion, without the end token that closes it.

    Other special tokens stay visible in the text: what a verifier scores is what was sampled.
    """
    body = list(ids[:-1] if ids and ids[-1] in policy.eos_ids else ids)
    return str(
        policy.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    )


class _Form(TypedDict):
    """Form of a family's prompt, beside its question and examples."""

    tagged: bool
    system: str


def _plain_ids(
    policy: Reader, question: str, form: _Form, examples: Sequence[Example]
) -> list[int]:
    tokenizer = policy.tokenizer
    if not _any_names_special(policy, question, examples):
        text = plain_prompt(question, **form, examples=examples)
        return _open(policy, tokenizer(text)["input_ids"])
    place, placed, texts = _placed(question, examples)
    first, *others = _parts(plain_prompt(place, **form, examples=placed), texts)
    ids = _open(policy, tokenizer(first)["input_ids"])
    return [*ids, *_ids_of_parts(policy, others, texts)]


def _open(policy: Reader, ids: Sequence[int]) -> list[int]:
    """Return a prompt's tokens without an end: some tokenizers close every text."""
    kept = list(ids)
    while kept and kept[-1] in policy.eos_ids:
        kept.pop()
    return kept


def _chat_ids(policy: Reader, question: str, form: _Form, examples: Sequence[Example]) -> list[int]:
    try:
        return _apply(policy, question, form, examples)
    except TemplateError:
        before = instruction(**form)
        if not before:
            raise
        # Some templates (Gemma's) refuse a system turn.
        bare = _Form(tagged=False, system="")
        return _apply(policy, question, bare, examples, before=f"{before}\n\n")


def _apply(
    policy: Reader, question: str, form: _Form, examples: Sequence[Example], before: str = ""
) -> list[int]:
    render = _renderer(policy)

    def turns(asked: str, shown: Sequence[Example]) -> list[dict[str, str]]:
        first, *others = messages_for(asked, **form, examples=shown)
        return [{**first, "content": before + first["content"]}, *others]

    if not _any_names_special(policy, question, examples):
        return list(render(turns(question, examples), tokenize=True, return_dict=False))
    # The template's own turns are tokens, what the question calls so is text.
    place, placed, texts = _placed(question, examples)
    text = str(render(turns(place, placed), tokenize=False))
    return _ids_of_parts(policy, _parts(text, texts), texts)


def _renderer(policy: Reader) -> Callable[..., Any]:
    # Templates that think unless told not to (Qwen3's) would fill every answer with it; others
    # do not look at the word.
    return partial(
        policy.tokenizer.apply_chat_template, add_generation_prompt=True, enable_thinking=False
    )


def _placed(
    question: str, examples: Sequence[Example]
) -> tuple[str, list[Example], dict[str, str]]:
    """Stand-ins for a question and its examples, and the text that each stands for."""
    texts = {_PLACE: question}
    for number, one in enumerate(examples):
        texts[f"{_PLACE}-q{number}-"] = one.question
        texts[f"{_PLACE}-a{number}-"] = one.answer
    names = list(texts)[1:]
    placed = [
        Example(question=asked, answer=answer)
        for asked, answer in zip(names[::2], names[1::2], strict=True)
    ]
    return _PLACE, placed, texts


def _parts(form: str, texts: Mapping[str, str]) -> list[str]:
    """A form cut at its stand-ins, which are parts themselves; begins with what is none."""
    # The question's own name begins the others.
    places = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    return re.split(f"({places})", form)


def _ids_of_parts(policy: Reader, parts: Sequence[str], texts: Mapping[str, str]) -> list[int]:
    ids: list[int] = []
    for part in parts:
        if part in texts:
            ids += encode_text(policy, texts[part])
        else:
            ids += policy.tokenizer(part, add_special_tokens=False)["input_ids"]
    return ids


def _any_names_special(policy: Reader, question: str, examples: Sequence[Example]) -> bool:
    texts = [question, *(text for one in examples for text in (one.question, one.answer))]
    return any(_names_special(policy, text) for text in texts)


def _names_special(policy: Reader, text: str) -> bool:
    """Return whether a text has the name of a special token in it."""
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
