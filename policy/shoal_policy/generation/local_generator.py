"""Questions answered in this process, games among them: each of those until it is over.

    rows that can be held     `playing`: a turn costs its own tokens
    others                    turn by turn, each computed from its conversation's beginning

What a row becomes depends on the seed and its own place alone: both ways draw the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shoal_policy.generation.game import PlayedGame, go_on, message_seed
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local import OnStep, generate, uniforms
from shoal_policy.generation.multi_turn_decoder import can_hold
from shoal_policy.generation.playing import play_held
from shoal_policy.generation.questions import askable
from shoal_policy.rollouts import Answer, OwnGroup, Question

Generate = Callable[..., list[list[Answer]]]
"""Signature of `shoal_policy.generation.local.generate`."""


class LocalGenerator:
    """A `Generator`: the policy answers itself, games among the questions until they are over."""

    server_logp_difference = None

    def __init__(self, generate: Generate = generate) -> None:
        """`generate` is another's where processes share the work."""
        self._generate = generate

    def answer(self, asking: GenerationRequest) -> list[OwnGroup]:
        """See `Generator`. Questions that the policy cannot hold are left out.

        The seed is that of the first messages, and of all later ones by their places. Raises what
        `generate` and `asking.play` raise.
        """
        questions, prompts = askable(asking.policy, asking.questions)
        generator = torch.Generator()
        generator.manual_seed(asking.seed)
        has_games = any(one.max_turns for one in questions)
        if self._generate is generate and has_games and can_hold(asking.policy):
            answers = _held(asking, questions, prompts, generator)
        else:
            answers = _by_turns(asking, questions, prompts, generator, self._generate)
        return [
            OwnGroup(question=question, answers=row)
            for question, row in zip(questions, answers, strict=True)
        ]


def _held(
    asking: GenerationRequest,
    questions: Sequence[Question],
    prompts: Sequence[Sequence[int]],
    generator: torch.Generator,
) -> list[tuple[Answer, ...]]:
    """Return each question's answers: games by rows that are held, the others beside them."""
    policy, num, sampling = asking.policy, asking.num_completions, asking.sampling
    numbers_PLM = uniforms(generator, len(prompts), num, sampling.max_new_tokens)
    once = [index for index, one in enumerate(questions) if not one.max_turns]
    games = [index for index, one in enumerate(questions) if one.max_turns]
    share, over = len(once) / len(questions), len(once) * num
    samples = generate(
        policy,
        [prompts[index] for index in once],
        num_completions=num,
        params=sampling,
        generator=numbers_PLM[once],
        on_step=lambda done, fraction: asking.on_step(done, share * fraction),
    )
    played = play_held(
        asking,
        [questions[index] for index in games],
        [prompts[index] for index in games],
        places=[index * num for index in games],
        uniforms_PLM=numbers_PLM[games],
        on_step=lambda done, part: asking.on_step(over + done, share + (1 - share) * part),
    )
    found = dict(zip(once, map(tuple, samples), strict=True))
    found |= dict(zip(games, (tuple(one.answer() for one in row) for row in played), strict=True))
    return [found[index] for index in range(len(questions))]


def _by_turns(
    asking: GenerationRequest,
    questions: Sequence[Question],
    prompts: Sequence[Sequence[int]],
    generator: torch.Generator,
    generate: Generate,
) -> list[tuple[Answer, ...]]:
    """The same, all games in step: each turn generates behind whole conversations."""
    policy, on_step = asking.policy, asking.on_step
    num_turns = max([1, *(question.max_turns for question in questions)])
    opened = generate(
        policy,
        prompts,
        num_completions=asking.num_completions,
        params=asking.sampling,
        generator=generator,
        on_step=_part(on_step, 0, 0, num_turns),
    )
    games: list[list[PlayedGame]] = []
    for number, (question, prompt, row) in enumerate(zip(questions, prompts, opened, strict=True)):
        games.append([])
        for index, sample in enumerate(row if question.max_turns else ()):
            place = number * len(row) + index
            game = PlayedGame(question=question, prompt=prompt, place=place)
            game.add_message(policy, sample)
            games[-1].append(game)
    everything = [game for row in games for game in row]
    total = sum(map(len, opened))
    alive = go_on(policy, everything, asking.play)
    for turn in range(1, num_turns):
        if not alive:
            break
        samples = generate(
            policy,
            [[*game.prompt, *game.ids] for game in alive],
            num_completions=1,
            params=asking.sampling,
            generator=[message_seed(asking.seed, game.place, turn) for game in alive],
            on_step=_part(on_step, total - len(alive), turn, num_turns),
        )
        for game, (sample,) in zip(alive, samples, strict=True):
            game.add_message(policy, sample)
        alive = go_on(policy, alive, asking.play)
    return [
        tuple(game.answer() for game in row) or tuple(samples)
        for row, samples in zip(games, opened, strict=True)
    ]


def _part(on_step: OnStep, num_over: int, turn: int, num_turns: int) -> OnStep:
    """Return the progress of one turn, as part of all: answers before the last turn may go on."""

    def told(done: int, fraction: float) -> None:
        over = num_over + (done if turn == num_turns - 1 else 0)
        on_step(over, (turn + fraction) / num_turns)

    return told
