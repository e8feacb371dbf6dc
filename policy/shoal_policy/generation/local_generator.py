"""Generates completions in this process; games are played to their end.

    rows that keep their cache    `game_batch`: a turn costs only its own tokens
    otherwise                     turn by turn, each computed from the beginning of the conversation

A row depends only on the seed and its own position: both ways sample the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shoal_policy.generation.game import PlayedGame, continue_games, message_seed
from shoal_policy.generation.game_batch import play_with_cache
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local import OnStep, generate, uniforms
from shoal_policy.generation.multi_turn_decoder import can_keep_cache
from shoal_policy.generation.questions import fit_prompts
from shoal_policy.rollouts import Answer, OwnGroup, Question

Generate = Callable[..., list[list[Answer]]]
"""Signature of `shoal_policy.generation.local.generate`."""


class LocalGenerator:
    """A `Generator` in which the policy itself generates, including all turns of games."""

    server_logp_difference = None

    def __init__(self, generate: Generate = generate) -> None:
        """`generate` may be replaced where ranks share the work."""
        self._generate = generate

    def generate(self, request: GenerationRequest) -> list[OwnGroup]:
        """See `Generator`. Questions that exceed the model's positions are skipped.

        The seed applies to first messages, and with the game's position to all later ones. Raises
        what `generate` and `request.play` raise.
        """
        questions, prompts = fit_prompts(request.policy, request.questions)
        generator = torch.Generator()
        generator.manual_seed(request.seed)
        has_games = any(one.max_turns for one in questions)
        if self._generate is generate and has_games and can_keep_cache(request.policy):
            answers = _generate_multi_turn(request, questions, prompts, generator)
        else:
            answers = _generate_turn_by_turn(request, questions, prompts, generator, self._generate)
        return [
            OwnGroup(question=question, answers=row)
            for question, row in zip(questions, answers, strict=True)
        ]


def _generate_multi_turn(
    request: GenerationRequest,
    questions: Sequence[Question],
    prompts: Sequence[Sequence[int]],
    generator: torch.Generator,
) -> list[tuple[Answer, ...]]:
    """Return each question's answers: games with kept caches, other questions separately."""
    policy, num, sampling = request.policy, request.num_completions, request.sampling
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
        on_step=lambda done, fraction: request.on_step(done, share * fraction),
    )
    played = play_with_cache(
        request,
        [questions[index] for index in games],
        [prompts[index] for index in games],
        places=[index * num for index in games],
        uniforms_PLM=numbers_PLM[games],
        on_step=lambda done, part: request.on_step(over + done, share + (1 - share) * part),
    )
    found = dict(zip(once, map(tuple, samples), strict=True))
    found |= dict(zip(games, (tuple(one.answer() for one in row) for row in played), strict=True))
    return [found[index] for index in range(len(questions))]


def _generate_turn_by_turn(
    request: GenerationRequest,
    questions: Sequence[Question],
    prompts: Sequence[Sequence[int]],
    generator: torch.Generator,
    generate: Generate,
) -> list[tuple[Answer, ...]]:
    """Return the same with all games in lockstep: each turn generates after whole conversations."""
    policy, on_step = request.policy, request.on_step
    num_turns = max([1, *(question.max_turns for question in questions)])
    opened = generate(
        policy,
        prompts,
        num_completions=request.num_completions,
        params=request.sampling,
        generator=generator,
        on_step=_scale_progress(on_step, 0, 0, num_turns),
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
    alive = continue_games(policy, everything, request.play)
    for turn in range(1, num_turns):
        if not alive:
            break
        samples = generate(
            policy,
            [[*game.prompt, *game.ids] for game in alive],
            num_completions=1,
            params=request.sampling,
            generator=[message_seed(request.seed, game.place, turn) for game in alive],
            on_step=_scale_progress(on_step, total - len(alive), turn, num_turns),
        )
        for game, (sample,) in zip(alive, samples, strict=True):
            game.add_message(policy, sample)
        alive = continue_games(policy, alive, request.play)
    return [
        tuple(game.answer() for game in row) or tuple(samples)
        for row, samples in zip(games, opened, strict=True)
    ]


def _scale_progress(on_step: OnStep, num_over: int, turn: int, num_turns: int) -> OnStep:
    """Return a callback that scales one turn's progress to all turns."""

    def on_turn_step(done: int, fraction: float) -> None:
        over = num_over + (done if turn == num_turns - 1 else 0)
        on_step(over, (turn + fraction) / num_turns)

    return on_turn_step
