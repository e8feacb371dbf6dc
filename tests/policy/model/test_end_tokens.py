"""Others' answers are closed as own ones are: by the end token of this chat's turn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch

from shoal_policy.generation.game import PlayedGame
from shoal_policy.model.loading import Policy, wrap_policy
from shoal_policy.model.prompting import encode_prompt, encode_text, observation_ids
from shoal_policy.model.retokenized import retokenize, retokenize_game
from shoal_policy.rollouts import Answer, Question
from shoal_policy.update.grpo import GrpoConfig, TrainGroup
from shoal_policy.update.logprobs import completion_logprobs
from shoal_policy.update.rows import make_rows
from shoal_tasks.turns import join_messages
from shoal_tasks.types import Play
from shoal_wire.types import Completion, FinishReason
from tests.policy import tiny_models
from tests.support import factories as make

EOS, TURN_END = 2, 4  # "<eos>" and "<x>" of `tiny_models.tokenizer`
CLOSINGS = {
    "at once": ("<x>\n", TURN_END),
    "after a line break": ("\n<x>\n", TURN_END),
    "after blanks": ("  <x>", TURN_END),
    "with the end of a text": ("<eos>\n", EOS),
    "twice": ("<x><eos>\n", TURN_END),
    "with a line break": ("\n", EOS),
    "after words": (" end <x>\n", EOS),
}
"""What a template puts after an answer, and the token that then closes an answer."""
SHAPES = {
    "every turn": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}CLOSING{% endfor %}",
    "turns that are followed": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}"
    "{% if not loop.last or m['role'] == 'user' %}CLOSING{% endif %}{% endfor %}",
    "answers": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}"
    "{% if m['role'] == 'assistant' %}CLOSING{% endif %}{% endfor %}",
}
PROMPT = "{% if add_generation_prompt %}assistant: {% endif %}"
KINDS = list(itertools.product(CLOSINGS, SHAPES))


def policy_of(
    closing: str, shape: str, declared: Sequence[int] = (EOS, TURN_END), prompt: str = "auto"
) -> Policy:
    template = SHAPES[shape].replace("CLOSING", CLOSINGS[closing][0]) + PROMPT
    words = tiny_models.tokenizer(template=template)
    model = tiny_models.model("qwen2")
    model.generation_config.eos_token_id = list(declared)
    return wrap_policy(model, words, name="chat", prompt=prompt)


@pytest.mark.parametrize(("closing", "shape"), KINDS)
def test_the_template_shows_what_closes_an_answer(closing: str, shape: str) -> None:
    policy = policy_of(closing, shape)
    assert policy.eos_ids == {EOS, TURN_END}
    assert policy.eos_id == CLOSINGS[closing][1]


def test_without_a_template_or_a_choice_it_is_the_tokenizers() -> None:
    assert policy_of("at once", "every turn", prompt="plain").eos_id == EOS
    assert policy_of("at once", "every turn", declared=[EOS]).eos_id == EOS
    broken = "{{ raise_exception('no') }}"
    model = tiny_models.model("qwen2")
    model.generation_config.eos_token_id = [EOS, TURN_END]
    words = tiny_models.tokenizer(template=broken)
    assert wrap_policy(model, words, name="chat").eos_id == EOS


@pytest.mark.parametrize(("closing", "shape"), KINDS)
def test_an_external_answer_has_the_tokens_of_the_same_own_one(closing: str, shape: str) -> None:
    """In one turn and in a game, where the observation begins after the end token."""
    policy = policy_of(closing, shape)
    end = CLOSINGS[closing][1]
    texts = ["4 + 4", "is 8", "yes"]
    sampled = [(*encode_text(policy, text), end) for text in texts]
    read = retokenize(policy, _completion("4 + 4"), False, 40)
    assert read is not None and read.ids == sampled[0]

    game = PlayedGame(question=_question(), prompt=[1], place=0)
    for number, (text, ids) in enumerate(zip(texts, sampled, strict=True)):
        game.add_message(policy, _answer(text, ids))
        seen = tuple(f"seen {one}" for one in range(number + 1))
        game.add_observation(
            policy, Play(observations=seen, done=number == 2, reward=1.0, error="")
        )
    own = game.answer()
    observations = ["seen 0", "seen 1", "seen 2"]
    other = retokenize_game(policy, _completion(join_messages(texts)), observations, 40)
    assert other is not None
    assert (other.ids, other.completion_positions) == (own.ids, own.completion_positions)
    # The end token is there once: sampled, and not again with the observation.
    between = observation_ids(policy, "seen 0")
    assert between[0] != end
    assert own.ids[: len(sampled[0]) + len(between)] == (*sampled[0], *between)


@pytest.mark.parametrize("closing", ["at once", "with the end of a text"])
def test_packed_and_padded_rows_train_on_that_token(closing: str) -> None:
    policy = policy_of(closing, "every turn")
    end = CLOSINGS[closing][1]
    prompt = encode_prompt(policy, "4 + 4?")
    found = [retokenize(policy, _completion(text), False, 40) for text in ("8", "it is 9", "")]
    completions = [one.ids for one in found if one is not None]
    group = TrainGroup(
        prompt_ids=prompt, completions=completions, advantages=[1.0, -0.5, -0.5], external=True
    )
    ([*rows],), _ = make_rows(policy, [group], GrpoConfig())
    expected = []
    for ids in completions:
        logits = policy.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0]
        expected.append(logits[-2].log_softmax(-1)[end])
    ends = torch.tensor([len(ids) for ids in completions]).cumsum(0) - 1
    for packed in (True, False):
        logprobs = completion_logprobs(policy, rows, packed=packed).logprobs
        torch.testing.assert_close(logprobs[ends], torch.stack(expected), atol=1e-5, rtol=0)


def _question() -> Question:
    return Question(task=make.task(1), text="go", tagged=False, max_turns=3)


def _completion(text: str) -> Completion:
    return Completion(text=text, num_tokens=1, finish_reason=FinishReason.STOP)


def _answer(text: str, ids: tuple[int, ...]) -> Answer:
    return Answer(ids=ids, text=text, finish_reason=FinishReason.STOP, logprobs=(-1.0,) * len(ids))
