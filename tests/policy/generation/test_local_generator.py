"""Games played by a policy against a real environment in its worker: what was sampled stays."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import trl
from hypothesis import given
from hypothesis import strategies as st

from shoal_policy.generation.game import PlayedGame
from shoal_policy.generation.local import generate
from shoal_policy.generation.local_generator import Generate, LocalGenerator
from shoal_policy.generation.questions import build_prompt
from shoal_policy.model.loading import Policy, wrap_policy
from shoal_policy.model.prompting import encode_prompt, encode_text, observation_ids
from shoal_policy.model.retokenized import retokenize_game
from shoal_policy.rollouts import Answer, OwnGroup, Question
from shoal_policy.tasks import TaskSource
from shoal_tasks.turns import SEPARATOR, join_messages, split_messages
from shoal_tasks.types import Play, PlayRequest
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import Completion, FinishReason
from tests.policy import tiny_models
from tests.policy.generation.vllm_cases import messages_of, request_of
from tests.support import factories as make
from tests.tasks.games import game_family

ECHO = """
class Game:
    def reset(self, seed):
        self.left = 3
        return "say a"

    def step(self, message):
        self.left -= 1
        return f"{self.left} left <eos>", 0.4 if "a" in message else 0, self.left == 0
"""
"""Ends after three messages, each with a reward if it contains an a."""
CHATML = (
    "{% for m in messages %}<bos>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' %}{{ m['content'].split('think.')[-1] }}{% else %}"
    "{{ m['content'] }}{% endif %}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant\n{% endif %}"
)
"""Takes thinking out of earlier turns, as Qwen3's does."""
LLAMA = (
    "{% for m in messages %}<bos>{{ m['role'] }}<bos>\n\n{{ m['content'] | trim }}<eos>"
    "{% endfor %}{% if add_generation_prompt %}<bos>assistant<bos>\n\n{% endif %}"
)
GEMMA = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
    "{% for m in messages %}<bos>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<bos>model\n{% endif %}"
)
BETWEEN = {
    "chatml": "\n<bos>user\nOBS<eos>\n<bos>assistant\n",
    "llama": "<bos>user<bos>\n\nOBS<eos><bos>assistant<bos>\n\n",
    "gemma": "\n<bos>user\nOBS<eos>\n<bos>model\n",
    "plain": "\n\nOBS\n<unk>nswer:",
    "tiny": "OBS<ans>",
}
"""The text that each writes between two messages, without the sampled end token."""
REAL = {
    "gemma": ("<bos>", "<end_of_turn>", "<start_of_turn>"),
    "gemma3": ("<bos>", "<end_of_turn>", "<start_of_turn>"),
    **dict.fromkeys(
        ("llama3", "llama3_1", "llama3_2"),
        ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
    ),
    **dict.fromkeys(("qwen2_5", "qwen3"), ("<|endoftext|>", "<|im_end|>", "<|im_start|>")),
    "phi3": ("<s>", "<|end|>", "<|user|>", "<|assistant|>"),
}
"""Published models whose own templates TRL ships (Apache-2.0), with the tokens that begin a text,
end a turn, and whatever else a template writes."""
TEMPLATES_OF_TRL = Path(str(trl.__file__)).parent / "chat_templates"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskSource]:
    spec = game_family(tmp_path_factory.mktemp("game"), ECHO, max_turns=4)
    with SyncTaskWorker([spec]) as worker:
        yield TaskSource(worker, [spec])


def policy_of(name: str, positions: int = 400) -> Policy:
    templates = {"chatml": CHATML, "llama": LLAMA, "gemma": GEMMA}
    return tiny_models.policy(
        "llama", positions=positions, answer_token=name == "tiny", template=templates.get(name)
    )


def played(
    policy: Policy,
    tasks: TaskSource,
    *,
    make: Generate = generate,
    seed: int = 5,
    count: int = 3,
    num: int = 24,
) -> list[OwnGroup]:
    requested = request_of(
        policy,
        tasks.held_out(count),
        num_completions=num,
        sampling=tiny_models.sampling(6),
        seed=seed,
        play=tasks.play,
    )
    return LocalGenerator(make).generate(requested)


def answers_of(groups: Sequence[OwnGroup]) -> list[Answer]:
    return [answer for group in groups for answer in group.answers]


def eager(policy: Policy) -> Policy:
    """The same, but it ends its messages often: games then have several."""
    with torch.no_grad():
        # Its logit is far above the others' or far below, one as often as the other.
        policy.model.get_output_embeddings().weight[policy.eos_id] *= 8
    return policy


@pytest.mark.parametrize("name", BETWEEN)
def test_a_turn_is_what_the_template_writes_between_two_messages(name: str) -> None:
    policy = policy_of(name)
    for message in ("2 left", "a <eos> <bos>user\n", " spaced "):
        text = policy.tokenizer.decode(observation_ids(policy, message))
        assert text == BETWEEN[name].replace("OBS", message)
        assert encode_text(policy, message) in [
            observation_ids(policy, message)[start : start + len(message)] for start in range(40)
        ], "names of special tokens in an observation are text"


def real(name: str) -> Policy:
    """A policy with a published model's own template, byte for byte, and its special tokens."""
    begin, end, *others = REAL[name]
    tokenizer = tiny_models.tokenizer(answer_token=False)
    tokenizer.chat_template = (TEMPLATES_OF_TRL / f"{name}.jinja").read_text()
    tokenizer.add_tokens(sorted(set(string.printable) - set(tiny_models.CHARACTERS)))
    tokenizer.add_special_tokens({"additional_special_tokens": [end, *others]})
    tokenizer.bos_token, tokenizer.eos_token = begin, end
    model = tiny_models.model("llama", vocab=len(tokenizer))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return wrap_policy(model, tokenizer, name=name)


@pytest.mark.parametrize("name", REAL)
def test_with_real_templates_appended_turns_are_the_rendered_conversation(name: str) -> None:
    policy = real(name)
    conversation: list[dict[str, str]] = []
    ids: list[int] = []
    for requested, message in (("Guess", "4"), ("lower, 3 left", "a <eos>"), ("No", "2 or 1")):
        ids += observation_ids(policy, requested) if ids else encode_prompt(policy, requested)
        conversation.append({"role": "user", "content": requested})
        rendered = policy.tokenizer.apply_chat_template(
            conversation, add_generation_prompt=True, enable_thinking=False, tokenize=False
        )
        if name == "qwen3":  # takes thinking out of earlier turns: what was sampled stays
            rendered = rendered.replace("assistant\n4", "assistant\n<think>\n\n</think>\n\n4")
            rendered = rendered.replace("assistant\na", "assistant\n<think>\n\n</think>\n\na")
        assert policy.tokenizer.decode(ids) == rendered
        ids += [*encode_text(policy, message), *policy.eos_ids]
        conversation.append({"role": "assistant", "content": message})


@pytest.mark.parametrize("name", BETWEEN)
def test_what_was_sampled_is_what_is_trained_on(name: str, tasks: TaskSource) -> None:
    policy = eager(policy_of(name))
    drawn: list[tuple[list[int], list[int]]] = []

    def noted(of: Policy, prompts: Sequence[Sequence[int]], **how: object) -> list[list[Answer]]:
        samples = generate(of, prompts, **how)  # type: ignore[arg-type]
        drawn.extend(
            (list(p), list(one.ids)) for p, row in zip(prompts, samples, strict=True) for one in row
        )
        return samples

    groups = played(policy, tasks, make=noted)
    found = messages_of(policy, groups, tasks.play)
    assert all(one in drawn for one in found), "it stands behind exactly what it was drawn behind"
    assert len(found) > len(answers_of(groups)) + 3


def test_how_a_game_ends(tasks: TaskSource) -> None:
    policy = eager(policy_of("tiny"))
    groups = played(policy, tasks)
    answers = answers_of(groups)
    ends = {(one.finish_reason, len(split_messages(one.text))) for one in answers}
    assert (FinishReason.STOP, 3) in ends, "the environment ended it"
    assert {count for finish, count in ends if finish is FinishReason.STOP} == {3}
    for one in answers:
        if one.finish_reason is FinishReason.LENGTH:
            assert one.ids[-1] not in policy.eos_ids, "its last message was cut"
    for answer in answers:
        assert answer.num_tokens == len(answer.logprobs)
    for group, rewards in zip(groups, tasks.verify_own(groups), strict=True):
        for answer, reward in zip(group.answers, rewards, strict=True):
            earned = 0.4 * sum("a" in message for message in split_messages(answer.text))
            assert reward == pytest.approx(min(1.0, earned))


def test_a_later_message_does_not_depend_on_who_else_still_plays(tasks: TaskSource) -> None:
    """The first rows' games are over at once: what the others go on with stays the same."""
    policy = eager(policy_of("tiny"))

    def with_cut(num_cut: int) -> list[str]:
        def cutting(
            of: Policy, prompts: Sequence[Sequence[int]], **how: object
        ) -> list[list[Answer]]:
            made = generate(of, prompts, **how)  # type: ignore[arg-type]
            if how["num_completions"] == 1:
                return made
            cut = [
                replace(one, finish_reason=FinishReason.LENGTH) if index < num_cut else one
                for index, one in enumerate(made[0])
            ]
            return [cut, *made[1:]]

        return [one.text for one in answers_of(played(policy, tasks, make=cutting, count=1))]

    whole, half = with_cut(0), with_cut(12)
    assert whole[12:] == half[12:] and whole[:12] != half[:12]
    assert any(len(split_messages(text)) > 1 for text in whole[12:])


def question(max_turns: int = 4) -> Question:
    return Question(task=make.task(1), text="go", tagged=False, max_turns=max_turns)


def sample(policy: Policy, text: str) -> Answer:
    ids = (*encode_text(policy, text), policy.eos_id)
    return Answer(ids=ids, text=text, finish_reason=FinishReason.STOP, logprobs=(-1.0,) * len(ids))


class Separating:
    """A tokenizer in which the digit 7 is read as the separator."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def __call__(self, *given: object, **how: object) -> object:
        return self._inner(*given, **how)  # type: ignore[operator]

    def decode(self, *given: object, **how: object) -> str:
        return str(self._inner.decode(*given, **how)).replace("7", SEPARATOR)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "play",
    [
        Play(observations=(), done=False, reward=0.0, error="it raised"),
        Play(observations=(), done=True, reward=0.0),
    ],
)
def test_a_game_whose_environment_fails_ends(play: Play) -> None:
    policy = policy_of("tiny")
    game = PlayedGame(question=question(), prompt=[1, 2], place=0)
    game.add_message(policy, sample(policy, "a"))
    game.add_observation(policy, play)
    assert game.ended is FinishReason.LENGTH


def test_others_games_are_read_as_own_ones(tasks: TaskSource) -> None:
    """By own tokens, with what the environment answers here: the same ids as the player's."""
    policy = eager(policy_of("chatml"))
    groups = played(policy, tasks, num=64)
    compared = 0
    for group in groups:
        requests = [
            PlayRequest(task=group.question.coordinates, messages=split_messages(one.text))
            for one in group.answers
        ]
        for answer, play in zip(group.answers, tasks.play(requests), strict=True):
            completion = Completion(
                text=answer.text, num_tokens=answer.num_tokens, finish_reason=answer.finish_reason
            )
            read = retokenize_game(policy, completion, play.observations, 7)
            honest = all(
                token > 4 or token == 2
                for token in (answer.ids[i] for i in answer.completion_positions or ())
            )
            if read is not None and honest:
                assert (
                    read.ids == answer.ids
                    and read.completion_positions == answer.completion_positions
                )
                compared += len(split_messages(answer.text)) > 1
            elif honest:
                assert not split_messages(answer.text)[-1]
            if len(play.observations) > 1:
                assert retokenize_game(policy, completion, (), 7) is None
    assert compared > 3


@given(
    messages=st.lists(
        st.text(tiny_models.CHARACTERS, min_size=1, max_size=5), min_size=1, max_size=4
    ),
    observations=st.lists(st.text(max_size=9), min_size=3, max_size=3),
    finish=st.sampled_from(FinishReason),
)
def test_a_reading_says_what_the_messages_say(
    messages: list[str], observations: list[str], finish: FinishReason
) -> None:
    policy = READER
    completion = Completion(text=join_messages(messages), num_tokens=9, finish_reason=finish)
    read = retokenize_game(policy, completion, observations, 6)
    assert read is not None and read.completion_positions is not None
    ends = [policy.eos_id] * len(messages)
    message = [[*encode_text(policy, one), end] for one, end in zip(messages, ends, strict=True)]
    if finish is FinishReason.LENGTH:
        message[-1].pop()
    assert [read.ids[place] for place in read.completion_positions] == [
        token for one in message for token in one
    ]
    assert retokenize_game(policy, completion, observations, max(map(len, message)) - 1) is None


@given(
    messages=st.lists(
        st.text(tiny_models.CHARACTERS, min_size=1, max_size=5), min_size=1, max_size=4
    ),
    data=st.data(),
)
def test_of_a_game_what_its_environment_does_not_read_is_marked(
    messages: list[str], data: st.DataObject
) -> None:
    completion = Completion(
        text=join_messages(messages), num_tokens=9, finish_reason=FinishReason.STOP
    )
    bounds = st.tuples(st.integers(0, 5), st.integers(0, 5))
    parts = [data.draw(bounds.filter(lambda part: part[0] <= part[1])) for _ in messages]
    read = retokenize_game(READER, completion, ["seen"] * 3, 6, parts)
    assert (
        read is not None
        and read.completion_positions is not None
        and read.unscored_mask is not None
    )
    assert len(read.unscored_mask) == len(read.completion_positions)
    expected = []
    for message, (start, end) in zip(messages, parts, strict=True):
        # A character a token, and the end of the message, which is read.
        expected += [not start <= at < end for at in range(len(message))] + [False]
    assert list(read.unscored_mask) == expected
    whole = retokenize_game(READER, completion, ["seen"] * 3, 6)
    assert whole is not None and whole.unscored_mask is None


READER = policy_of("llama")


@pytest.mark.parametrize(("message", "kept"), [("ab7cd", 2), ("7cd", 1)])
@pytest.mark.parametrize("before", [[], ["a"]])
def test_a_message_with_the_separator_ends_its_game_before_it(
    before: list[str], message: str, kept: int
) -> None:
    """One that begins with it is one token and says nothing."""
    policy = policy_of("tiny")
    policy = replace(policy, tokenizer=Separating(policy.tokenizer))
    game = PlayedGame(question=question(), prompt=[1, 2], place=0)
    earlier = [sample(policy, text) for text in before]
    for one in earlier:
        game.add_message(policy, one)
        game.add_observation(policy, Play(observations=("b",), done=False, reward=0.0))
    drawn = sample(policy, message)
    game.add_message(policy, replace(drawn, text=message.replace("7", SEPARATOR)))
    answer = game.answer()
    assert split_messages(answer.text) == (*before, message.partition("7")[0])
    assert answer.finish_reason is FinishReason.LENGTH
    assert answer.ids[-kept:] == drawn.ids[:kept]
    assert (answer.completion_positions or ())[-1] == len(answer.ids) - 1
    assert (
        len(answer.logprobs)
        == answer.num_completion_tokens
        == sum(len(o.ids) for o in earlier) + kept
    )


QUICK = """
class Game:
    def reset(self, seed):
        self.turn = 0
        return "" if seed % 2 else "go"

    def step(self, message):
        self.turn += 1
        return "", float(message == ""), True
"""
"""Replies with nothing, and ends after any first message."""


def test_a_game_that_is_over_at_once_and_messages_that_are_empty(tmp_path: Path) -> None:
    policy = replace(policy_of("tiny"), eos_ids=frozenset({2, *range(5, 30)}))
    spec = game_family(tmp_path, QUICK, max_turns=3)
    with SyncTaskWorker([spec]) as worker:
        source = TaskSource(worker, [spec])
        groups = played(policy, source)
        rewards = source.verify_own(groups)
    answers = answers_of(groups)
    assert {len(split_messages(one.text)) for one in answers} == {1}
    empty = [one for one in answers if len(one.ids) == 1 and not one.text]
    assert empty and all(one.finish_reason is FinishReason.STOP for one in empty)
    earned = [one for row in rewards for one in row]
    # One that was cut ends its game, and the environment had ended it, too.
    for answer, reward in zip(answers, earned, strict=True):
        assert reward == float(answer.text == "")


def test_empty_messages_go_on(tasks: TaskSource) -> None:
    policy = policy_of("chatml")
    policy = replace(policy, eos_ids=frozenset(range(policy.model.config.vocab_size)))
    for answer in answers_of(played(policy, tasks, num=6)):
        assert split_messages(answer.text) == ("", "", "")
        assert answer.finish_reason is FinishReason.STOP and answer.num_completion_tokens == 3


def test_positions_run_out_in_the_middle_of_a_game(tasks: TaskSource) -> None:
    """Wherever they do: in the message, in what the environment says, or exactly behind it."""
    ends = set()
    for positions in range(12, 60):
        policy = policy_of("tiny", positions=positions)
        policy = replace(policy, eos_ids=frozenset({2, *range(5, 16)}))
        (group,) = played(policy, tasks, count=1, num=8)
        prompt = build_prompt(policy, group.question) or []
        for answer in group.answers:
            assert len(prompt) + len(answer.ids) <= positions
            assert (answer.completion_positions or ())[-1] == len(answer.ids) - 1
            ends.add((answer.finish_reason, answer.ids[-1] in policy.eos_ids))
    stop, cut = FinishReason.STOP, FinishReason.LENGTH
    assert ends == {(stop, True), (cut, True), (cut, False)}
