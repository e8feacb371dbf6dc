"""Reads another node's completion in own tokens, to train on it as its own (section 3.2).

    text ─▶ one opening tag? ─▶ own token ids ─▶ fit the room? ─▶ the same text again? ─▶ reading

What the verifier rewarded is the text. Only ids that are exactly that text, whole, may be trained
on with that reward: a completion that has to be cut, or that the tokenizer changes, has no reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import decode_completion, encode_completion, encode_text, turn_ids
from shoal_tasks.answers import opens_twice, unscored_spans
from shoal_tasks.read_parts import Span
from shoal_tasks.turns import split_messages
from shoal_tasks.unit_tests.sources import unscored_around_code
from shoal_wire.types import Completion, FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Retokenized:
    """A completion of another node in own tokens."""

    ids: tuple[int, ...]
    """Token ids, with the end token where the completion ended by itself."""
    unread: tuple[bool, ...] | None
    """Tokens with a part that the verifier does not read, of a game those of `said`; None where it
    reads all."""
    said: tuple[int, ...] | None = None
    """Places of what the other node's policy said in a game; None where it said all."""


def retokenize(
    policy: Policy, completion: Completion, tagged: bool, room: int, *, is_code: bool = False
) -> Retokenized | None:
    """Return a completion as this policy reads it; None where that is not the same text whole.

    `room` is how many tokens an own answer can have, with its end token. A tagged completion that
    begins more than one answer has no reading: its verifier takes the last, and what stands in the
    others would be learnt. Nor has one with several blocks of code, where the answer `is_code`.
    """
    text, finish = completion.text, completion.finish_reason
    if tagged and opens_twice(text):
        return None
    ids = encode_completion(policy, text, finish)
    body = ids[:-1] if finish is FinishReason.STOP else ids
    # No own answer goes on behind an end token.
    if len(ids) > room or not policy.eos_ids.isdisjoint(body):
        return None
    if decode_completion(policy, body) != text:
        return None
    spans = unscored_spans(text, tagged=tagged)
    if is_code:
        around = unscored_around_code(text)
        if around is None:
            return None
        spans = (*spans, *around)
    unread = _tokens_in(policy, text, spans) if spans else None
    if unread is not None and finish is FinishReason.STOP:
        unread = (*unread, False)
    return Retokenized(ids=tuple(ids), unread=unread)


def game_reading(
    policy: Policy,
    completion: Completion,
    observations: Sequence[str],
    room: int,
    parts: Sequence[Span] | None = None,
) -> Retokenized | None:
    """Return a game as this policy reads it; None where its messages are not the same text whole.

    `observations` is what the environment answered to each message, by this node's own replay, and
    `room` how many tokens an own message can have, with its end token. A message that the game went
    on after has one; the last has one where the game ended by it. `parts` is what of each message
    the environment reads (`read_parts`); None where it reads all.
    """
    messages = split_messages(completion.text)
    if len(observations) < len(messages) - 1:
        return None
    ids: list[int] = []
    said: list[int] = []
    unread: list[bool] = []
    for number, message in enumerate(messages):
        is_last = number == len(messages) - 1
        finish = completion.finish_reason if is_last else FinishReason.STOP
        read = retokenize(
            policy, replace(completion, text=message, finish_reason=finish), False, room
        )
        if read is None or not read.ids:
            return None
        said += range(len(ids), len(ids) + len(read.ids))
        ids += read.ids
        if parts is not None:
            start, end = parts[number]
            around = _tokens_in(policy, message, ((0, start), (end, len(message))))
            unread += [*around, *(False for _ in read.ids[len(around) :])]
        if not is_last:
            ids += turn_ids(policy, observations[number])
    return Retokenized(ids=tuple(ids), unread=tuple(unread) if parts else None, said=tuple(said))


def _tokens_in(policy: Policy, text: str, spans: tuple[tuple[int, int], ...]) -> tuple[bool, ...]:
    """Return which tokens of a text have a character in one of these ranges.

    A tokenizer that does not say which characters a token has makes all of them such tokens.
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
