"""Re-encodes external completions with the own tokenizer, to train on them (section 3.2).

    text ─▶ one opening tag? ─▶ own token ids ─▶ within the limit? ─▶ decodes to the same text? ─▶
    ok

The verifier rewarded the text. Only ids that decode to exactly that text, whole, may be trained on
with its reward: a completion that is too long, or that the tokenizer changes, is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import (
    decode_completion,
    encode_completion,
    encode_text,
    observation_ids,
)
from shoal_tasks.answers import opens_twice, unscored_spans
from shoal_tasks.read_parts import Span
from shoal_tasks.turns import split_messages
from shoal_tasks.unit_tests.sources import unscored_around_code
from shoal_wire.types import Completion, FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Retokenized:
    """An external completion in own tokens."""

    ids: tuple[int, ...]
    """Token ids, with the end token if the completion stopped by itself."""
    unscored_mask: tuple[bool, ...] | None
    """Mask of the tokens that the verifier ignores at least in part (in a game, one value for each
    of `completion_positions`); None if it scores all."""
    completion_positions: tuple[int, ...] | None = None
    """Positions of the other policy's tokens in a game; None if it generated all."""


def retokenize(
    policy: Policy, completion: Completion, tagged: bool, max_tokens: int, *, is_code: bool = False
) -> Retokenized | None:
    """Return a completion in own tokens; None if that is not exactly the same text.

    `max_tokens` is the limit of an own answer, end token included. Also None for a tagged
    completion with more than one answer, since its verifier reads the last and the others would be
    trained on, and for several code blocks if the answer `is_code`.
    """
    text, finish = completion.text, completion.finish_reason
    if tagged and opens_twice(text):
        return None
    ids = encode_completion(policy, text, finish)
    body = ids[:-1] if finish is FinishReason.STOP else ids
    # No own answer continues after an end token.
    if len(ids) > max_tokens or not policy.eos_ids.isdisjoint(body):
        return None
    if decode_completion(policy, body) != text:
        return None
    spans = unscored_spans(text, tagged=tagged)
    if is_code:
        around = unscored_around_code(text)
        if around is None:
            return None
        spans = (*spans, *around)
    unscored_mask = _tokens_in(policy, text, spans) if spans else None
    if unscored_mask is not None and finish is FinishReason.STOP:
        unscored_mask = (*unscored_mask, False)
    return Retokenized(ids=tuple(ids), unscored_mask=unscored_mask)


def retokenize_game(
    policy: Policy,
    completion: Completion,
    observations: Sequence[str],
    max_tokens: int,
    parts: Sequence[Span] | None = None,
) -> Retokenized | None:
    """Return a game in own tokens; None if its messages are not exactly the same text.

    `observations` are the environment's replies in this node's own replay. `max_tokens` is the
    limit of one own message, end token included: each message ends with one, the last only if it
    ended the game. `parts` are the spans of each message that the environment reads (`read_parts`);
    None if it reads all.
    """
    messages = split_messages(completion.text)
    if len(observations) < len(messages) - 1:
        return None
    ids: list[int] = []
    completion_positions: list[int] = []
    unscored_mask: list[bool] = []
    for number, message in enumerate(messages):
        is_last = number == len(messages) - 1
        finish = completion.finish_reason if is_last else FinishReason.STOP
        read = retokenize(
            policy, replace(completion, text=message, finish_reason=finish), False, max_tokens
        )
        if read is None or not read.ids:
            return None
        completion_positions += range(len(ids), len(ids) + len(read.ids))
        ids += read.ids
        if parts is not None:
            start, end = parts[number]
            around = _tokens_in(policy, message, ((0, start), (end, len(message))))
            unscored_mask += [*around, *(False for _ in read.ids[len(around) :])]
        if not is_last:
            ids += observation_ids(policy, observations[number])
    return Retokenized(
        ids=tuple(ids),
        unscored_mask=tuple(unscored_mask) if parts else None,
        completion_positions=tuple(completion_positions),
    )


def _tokens_in(policy: Policy, text: str, spans: tuple[tuple[int, int], ...]) -> tuple[bool, ...]:
    """Return a mask of the tokens that overlap one of these character spans.

    All tokens do if the tokenizer cannot map tokens to characters.
    """
    if not policy.tokenizer.is_fast:
        return (True,) * len(encode_text(policy, text))
    encoded = policy.tokenizer(
        text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True
    )
    return tuple(
        any(start < last and first < end for first, last in spans)
        for start, end in encoded["offset_mapping"]
    )
