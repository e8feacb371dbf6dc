"""Others' text in own tokens: the same text whole, or nothing; and what of it no verifier reads."""

from __future__ import annotations

import functools
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram

from shoal_policy.model.loading import Policy, load_policy, wrap_policy
from shoal_policy.model.prompting import decode_completion
from shoal_policy.model.retokenized import retokenize
from shoal_tasks.answers import extract_answer, opens_twice, unscored_spans
from shoal_tasks.spec import AnswerFormat
from shoal_wire.types import Completion, FinishReason
from tests.policy import tiny_models


def _wrapped(backend: Tokenizer) -> Policy:
    backend.add_special_tokens(tiny_models.SPECIALS)
    tokenizer = tiny_models.wrapped(backend)
    model = tiny_models.model("qwen2", vocab=len(tokenizer))
    return wrap_policy(model, tokenizer, name=type(backend.model).__name__)


def _byte_pairs() -> Policy:
    """Tokens of several characters, white space with a word among them."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "Ġ"), ("ĠĠ", "ĠĠ"), ("<", "a"), ("4", "2"), ("Ġ", "42"), (">", "Ċ")]
    words = [*letters, *("".join(pair) for pair in merges)]
    backend = Tokenizer(BPE({word: i for i, word in enumerate(words)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return _wrapped(backend)


def _pieces() -> Policy:
    """Return a policy whose tokenizer marks spaces, puts one in front and normalises text."""
    pieces = [("<unk>", 0.0), *((c, -3.0) for c in "▁abcdefghijklmnopqrstuvwxyz0123456789<>/!")]
    backend = Tokenizer(Unigram([*pieces, ("▁42", -1.0), ("answer", -1.0)], unk_id=0))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return _wrapped(backend)


def _lower() -> Policy:
    backend = tiny_models.tokenizer().backend_tokenizer
    lower = Tokenizer.from_str(backend.to_str())
    lower.normalizer = normalizers.Lowercase()
    return _wrapped(lower)


POLICIES = {
    "embedded": lambda: load_policy("tiny"),
    "characters": tiny_models.policy,
    "byte pairs": _byte_pairs,
    "pieces": _pieces,
    "lower case": _lower,
}


@functools.cache
def policy_of(name: str) -> Policy:
    return POLICIES[name]()


PARTS = st.sampled_from(
    [
        *("42", "7", " ", "    ", "\t", "\n", "<answer>", "</answer>", "so ", "<eos>", "<ans>"),
        *("B", "ﬁ", "４２", "e\u0301", "\u200b", "\u00a0", "I", "Ⅷ", "\x1f", "!buy", "<answer"),
        "answer>",
    ]
)
SAID = st.lists(PARTS, max_size=3).map("".join)
TAGGED = st.tuples(SAID, SAID, SAID).map(lambda p: f"{p[0]}<answer>{p[1]}</answer>{p[2]}")
TEXTS = st.one_of(TAGGED, st.lists(PARTS, max_size=8).map("".join), st.text(max_size=12))


@pytest.mark.parametrize("name", POLICIES)
@hypothesis_settings(max_examples=400, deadline=None)
@given(
    text=TEXTS,
    finish=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
    tagged=st.booleans(),
    room=st.integers(0, 40),
)
@example(
    text="<answer>0</answer><answer>42</answer>", finish=FinishReason.STOP, tagged=True, room=40
)
@example(text=" " * 40 + "42", finish=FinishReason.STOP, tagged=False, room=13)
def test_a_reading_is_the_same_text_whole(
    name: str, text: str, finish: FinishReason, tagged: bool, room: int
) -> None:
    """Two thousand texts over five tokenizers, which partly change the text."""
    policy = policy_of(name)
    reading = retokenize(
        policy, Completion(text=text, num_tokens=1, finish_reason=finish), tagged, room
    )
    if reading is None:
        return
    ids = list(reading.ids)
    assert len(ids) <= room
    assert (ids[-1:] == [policy.eos_id]) is (finish is FinishReason.STOP)
    body = ids[:-1] if finish is FinishReason.STOP else ids
    assert policy.eos_ids.isdisjoint(body)
    assert decode_completion(policy, body) == text
    assert not (tagged and opens_twice(text))
    spans = unscored_spans(text, tagged=tagged)
    assert (reading.unscored_mask is not None) is bool(spans)
    if reading.unscored_mask is not None:
        assert len(reading.unscored_mask) == len(ids)
        marked = zip(body, reading.unscored_mask, strict=False)
        read = decode_completion(
            policy, [token for token, unscored_mask in marked if not unscored_mask]
        )
        # A token that holds both is not read, so less may be left, never more.
        assert len(read) <= len(text) - sum(end - start for start, end in spans)
        if name == "characters":
            assert read == without(text, spans)


def without(text: str, spans: tuple[tuple[int, int], ...]) -> str:
    kept = list(text)
    for start, end in reversed(spans):
        del kept[start:end]
    return "".join(kept)


@pytest.mark.parametrize("name", ["embedded", "characters", "byte pairs", "pieces"])
def test_ordinary_answers_are_read(name: str) -> None:
    policy = policy_of(name)
    for text in ("42", "7", "<answer>42</answer>"):
        one = Completion(text=text, num_tokens=1, finish_reason=FinishReason.STOP)
        reading = retokenize(policy, one, "<" in text, 40)
        assert reading is not None, text
        assert reading.unscored_mask is None


def test_tokens_that_the_verifier_does_not_read_are_marked() -> None:
    policy = policy_of("embedded")
    one = Completion(text="so <answer> 42</answer>!", num_tokens=1, finish_reason=FinishReason.STOP)
    reading = retokenize(policy, one, True, 40)
    assert reading is not None
    assert reading.unscored_mask is not None
    marked = [i for i, is_unread in enumerate(reading.unscored_mask) if is_unread]
    assert marked == [0, 1, 2, 11, 23]


@hypothesis_settings(max_examples=1000, deadline=None)
@given(text=TEXTS, tagged=st.booleans(), finish=st.sampled_from(list(FinishReason)))
def test_without_what_is_unread_the_answer_is_the_same(
    text: str, tagged: bool, finish: FinishReason
) -> None:
    """A thousand texts: the ranges hold nothing that decides the reward, and all else does."""
    form = AnswerFormat.TAGGED if tagged else AnswerFormat.PLAIN
    if tagged and opens_twice(text):
        return
    spans = unscored_spans(text, tagged=tagged)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    kept = without(text, spans)
    assert extract_answer(form, kept, finish) == extract_answer(form, text, finish)
    if not tagged and kept:
        assert not kept[0].isspace()
        assert not kept[-1].isspace()
