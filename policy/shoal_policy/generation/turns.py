"""Questions answered in this process, games among them: each of those until it is over.

    rows that can be held     `playing`: a turn costs its own tokens
    others                    turn by turn, each computed from its conversation's beginning

What a row becomes depends on the seed and its own place alone: both ways draw the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shoal_policy.generation.game import PlayedGame, go_on, message_seed
from shoal_policy.generation.held_rows import can_hold
from shoal_policy.generation.local import OnStep, generate, uniforms
from shoal_policy.generation.playing import play_held
from shoal_policy.generation.talk import PlayGames
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import Answer, Question
from shoal_wire.types import SamplingParams

Generate = Callable[..., list[list[Answer]]]
"""Signature of `shoal_policy.generation.local.generate`."""


def answer_all(
    policy: Policy,
    questions: Sequence[Question],
    prompts: Sequence[Sequence[int]],
    *,
    num_completions: int,
    sampling: SamplingParams,
    generator: torch.Generator,
    generate: Generate,
    play: PlayGames,
    seed: int,
    on_step: OnStep = lambda _done, _fraction: None,
) -> list[tuple[Answer, ...]]:
    """Return each question's answers; a game's are whole games.

    `generator` is drawn from for the first messages, `seed` is that of all later ones. Raises what
    `generate` and `play` raise.
    """
    if generate is not _HERE or not any(one.max_turns for one in questions) or not can_hold(policy):
        return _by_turns(
            *(policy, questions, prompts, num_completions, sampling, generator),
            *(generate, play, seed, on_step),
        )
    numbers_PLM = uniforms(generator, len(prompts), num_completions, sampling.max_new_tokens)
    once = [index for index, one in enumerate(questions) if not one.max_turns]
    games = [index for index, one in enumerate(questions) if one.max_turns]
    share = len(once) / len(questions)
    samples = generate(
        policy,
        [prompts[index] for index in once],
        num_completions=num_completions,
        params=sampling,
        generator=numbers_PLM[once],
        on_step=lambda done, fraction: on_step(done, share * fraction),
    )
    over = len(once) * num_completions
    played = play_held(
        policy,
        [questions[index] for index in games],
        [prompts[index] for index in games],
        places=[index * num_completions for index in games],
        num_completions=num_completions,
        params=sampling,
        uniforms_PLM=numbers_PLM[games],
        play=play,
        seed=seed,
        on_step=lambda done, part: on_step(over + done, share + (1 - share) * part),
    )
    found = dict(zip(once, map(tuple, samples), strict=True))
    found |= dict(zip(games, (tuple(one.answer() for one in row) for row in played), strict=True))
    return [found[index] for index in range(len(questions))]


_HERE = generate


def _by_turns(
    policy: Policy,
    questions: Sequence[Question],
    prompts: Sequence[Sequence[int]],
    num_completions: int,
    sampling: SamplingParams,
    generator: torch.Generator,
    generate: Generate,
    play: PlayGames,
    seed: int,
    on_step: OnStep,
) -> list[tuple[Answer, ...]]:
    """The same, all games in step: each turn generates behind whole conversations."""
    num_turns = max([1, *(question.max_turns for question in questions)])
    opened = generate(
        policy,
        prompts,
        num_completions=num_completions,
        params=sampling,
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
    alive = go_on(policy, everything, play)
    for turn in range(1, num_turns):
        if not alive:
            break
        samples = generate(
            policy,
            [[*game.prompt, *game.ids] for game in alive],
            num_completions=1,
            params=sampling,
            generator=[message_seed(seed, game.place, turn) for game in alive],
            on_step=_part(on_step, total - len(alive), turn, num_turns),
        )
        for game, (sample,) in zip(alive, samples, strict=True):
            game.add_message(policy, sample)
        alive = go_on(policy, alive, play)
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
