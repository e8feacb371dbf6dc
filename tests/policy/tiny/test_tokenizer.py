"""The embedded model's tokenizer: lossless, short on the easy families, blind to special names."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from shoal_policy.tiny import Profile, assets_path
from shoal_policy.tiny.tokenizer import GAME_PHRASES, PHRASES, SPECIALS, build_tokenizer
from shoal_tasks.families import EASY
from shoal_tasks.worker.generate import TaskStream

TOKENIZER = build_tokenizer()
SPECIAL_IDS = set(TOKENIZER.convert_tokens_to_ids(list(SPECIALS)))

ascii_text = st.text(st.characters(min_codepoint=32, max_codepoint=126))
phrase_text = st.lists(st.one_of(st.sampled_from(PHRASES), ascii_text), max_size=6).map("".join)
any_text = st.text(st.characters(exclude_categories=["Cs"])).map(
    lambda text: unicodedata.normalize("NFC", text)
)


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


def text_of(ids: list[int]) -> str:
    return str(TOKENIZER.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


@given(st.one_of(ascii_text, phrase_text, any_text))
def test_any_normal_text_comes_back(text: str) -> None:
    assert text_of(ids_of(text)) == text


@given(st.lists(st.one_of(st.sampled_from(SPECIALS), ascii_text), max_size=5).map("".join))
def test_names_of_special_tokens_in_a_text_stay_characters(text: str) -> None:
    assert not SPECIAL_IDS & set(ids_of(text))
    assert text_of(ids_of(text)) == text


@pytest.mark.parametrize("spec", EASY, ids=lambda spec: spec.name)
def test_easy_questions_are_short_and_come_back(spec) -> None:
    stream = TaskStream(spec)
    for seed in range(300):
        question = stream.item(seed, 0).question
        ids = ids_of(question)
        assert text_of(ids) == question
        assert len(ids) <= 32


@pytest.mark.parametrize("profile", list(Profile))
def test_the_shipped_tokenizer_is_the_built_one(profile: Profile) -> None:
    shipped = AutoTokenizer.from_pretrained(assets_path(profile))
    built = build_tokenizer(GAME_PHRASES) if profile is Profile.GAMES else TOKENIZER
    assert shipped.get_vocab() == built.get_vocab()
    assert shipped.backend_tokenizer.to_str() == built.backend_tokenizer.to_str()
    assert (shipped.pad_token, shipped.bos_token, shipped.eos_token) == ("<pad>", "<bos>", "<eos>")
