"""Plays games in rows that keep their keys and values: a turn costs only its own tokens.

    all rows sample, one token each ──▶ a quarter finished a message ──▶ `play` replies to these
         ▲                                                                      │
         └── in the next pass they read the observation while others sample ◀───┘

Games of one batch are at different turns, and none waits for the longest message of a turn. Which
rows wait depends only on token counts, never on a clock: a repeated round goes through the same
batches.

Shapes: P prompts, L games of each, R rows still playing, M new tokens of a message at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shoal_policy.generation.game import PlayedGame, continue_games, message_seed
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local import (
    COMPACT_BELOW,
    GenerationBatch,
    OnStep,
    build_answer,
    check_request,
    generate_in_chunks,
    sample_tokens,
    uniforms,
)
from shoal_policy.generation.multi_turn_decoder import MultiTurnDecoder
from shoal_policy.generation.sampling_setup import MAX_ROWS, max_batch_rows
from shoal_policy.generation.transcript import PlayGames
from shoal_policy.rollouts import Question

_OBSERVE_SHARE = 1.0 - COMPACT_BELOW
"""Share of rows with a finished message at which these get replies. Until then they idle in the
batch, like finished rows in `local`; each reply costs a call of the task worker."""


def play_with_cache(
    request: GenerationRequest,
    questions: Sequence[Question],
    prompts: Sequence[Sequence[int]],
    *,
    places: Sequence[int],
    uniforms_PLM: torch.Tensor,
    on_step: OnStep,
) -> list[list[PlayedGame]]:
    """Return the finished games of these questions.

    `places` are the positions of each question's first game among all answers; `uniforms_PLM` are
    the random numbers of first messages. Raises what `local.generate` and `request.play` raise.
    """
    policy, params, num_completions = request.policy, request.sampling, request.num_completions
    check_request(policy, prompts, num_completions, params)

    def played(chunk: GenerationBatch, on_chunk_step: OnStep) -> list[PlayedGame]:
        games = [
            PlayedGame(question=questions[index], prompt=prompts[index], place=places[index] + one)
            for index, one in chunk.row_indices()
        ]
        batch = _GameBatch(request, games, chunk.end - chunk.first)
        batch.run(chunk.of(uniforms_PLM).to(policy.device), request.play, on_chunk_step)
        return games

    # Observations are of unknown length: each is estimated as long as a message.
    most_turns = max(question.max_turns for question in questions)
    longest = max(map(len, prompts)) + 2 * most_turns * params.max_new_tokens
    rows = min(MAX_ROWS, len(prompts) * num_completions)
    rows = max_batch_rows(policy, rows, min(longest, policy.max_positions))
    return generate_in_chunks(
        policy, list(map(len, prompts)), num_completions, rows, played, on_step=on_step
    )


class _GameBatch:
    """Games that are played together. `_games` and all tensors are indexed by row."""

    def __init__(
        self, request: GenerationRequest, games: Sequence[PlayedGame], repeat: int
    ) -> None:
        policy, params = request.policy, request.sampling
        self._policy, self._params, self._seed = policy, params, request.seed
        self._games, self._num_games = list(games), len(games)
        device, shape = policy.device, (len(games), params.max_new_tokens)
        prompts = [game.prompt for game in games[::repeat]]
        self._rows = MultiTurnDecoder(policy, prompts, repeat, params.max_new_tokens)
        self._eos = torch.tensor(sorted(policy.eos_ids), device=device)
        self._limits_R = torch.tensor([self._limit(game) for game in games], device=device)
        self._sizes_R = torch.zeros_like(self._limits_R)
        self._ids_RM = torch.zeros(shape, dtype=torch.long, device=device)
        self._logprobs_RM = torch.zeros(shape, device=device)
        self._sampling_R = torch.ones(len(games), dtype=torch.bool, device=device)

    def run(self, uniforms_RM: torch.Tensor, play: PlayGames, on_step: OnStep) -> None:
        """Play until every game has ended."""
        self._uniforms_RM = uniforms_RM.clone()
        logits_RV = self._rows.prefill()
        while True:
            ids_R = self._sample(logits_RV)
            num_playing = sum(game.ended is None for game in self._games)
            num_sampling = int(self._sampling_R.sum())
            sampling_R, observed = self._sampling_R, {}
            num_waiting = num_playing - num_sampling
            if num_waiting and num_waiting >= _OBSERVE_SHARE * num_playing:
                observed = self._observe(play)
                num_playing = num_sampling + len(observed)
            on_step(self._num_games - num_playing, self._fraction())
            if not num_playing:
                return
            if num_playing <= COMPACT_BELOW * len(self._games):
                kept = [row for row, game in enumerate(self._games) if game.ended is None]
                observed = {kept.index(row): ids for row, ids in observed.items()}
                rows = torch.tensor(kept, device=ids_R.device)
                ids_R, sampling_R = ids_R[rows], sampling_R[rows]
                self._keep(kept, rows)
            logits_RV = self._rows.step(ids_R, sampling_R, observed)

    def _sample(self, logits_RV: torch.Tensor) -> torch.Tensor:
        """Sample a token for each sampling row; record which rows finished their message."""
        at_R1 = self._sizes_R.clamp(max=self._params.max_new_tokens - 1)[:, None]
        uniforms_R = self._uniforms_RM.gather(1, at_R1)[:, 0]
        ids_R, logprobs_R = sample_tokens(logits_RV, uniforms_R, self._params)
        for noted_RM, new_R in ((self._ids_RM, ids_R), (self._logprobs_RM, logprobs_R)):
            before_R = noted_RM.gather(1, at_R1)[:, 0]
            noted_RM.scatter_(1, at_R1, torch.where(self._sampling_R, new_R, before_R)[:, None])
        self._sizes_R = self._sizes_R + self._sampling_R
        ended_R = torch.isin(ids_R, self._eos) | (self._sizes_R >= self._limits_R)
        self._sampling_R = self._sampling_R & ~ended_R
        return ids_R

    def _observe(self, play: PlayGames) -> dict[int, list[int]]:
        """Get environments' replies for waiting rows; return the tokens that each reads next."""
        sampling = self._sampling_R.tolist()
        waiting = [
            row for row, game in enumerate(self._games) if game.ended is None and not sampling[row]
        ]
        lasts: dict[int, int] = {}
        noted = self._ids_RM[waiting], self._logprobs_RM[waiting], self._sizes_R[waiting]
        for row, ids, logprobs, size in zip(waiting, *(one.tolist() for one in noted), strict=True):
            sample = build_answer(self._policy, ids[:size], logprobs[:size])
            self._games[row].add_message(self._policy, sample)
            lasts[row] = sample.ids[-1]
        before = {row: len(self._games[row].ids) for row in waiting}
        continue_games(self._policy, [self._games[row] for row in waiting], play)
        observed = {
            row: [lasts[row], *self._games[row].ids[before[row] :]]
            for row in waiting
            if self._games[row].ended is None
        }
        self._begin_messages(list(observed))
        return observed

    def _begin_messages(self, rows: Sequence[int]) -> None:
        if not rows:
            return
        games = [self._games[row] for row in rows]
        seeds = [message_seed(self._seed, game.place, len(game.messages)) for game in games]
        drawn_RM = uniforms(seeds, len(rows), 1, self._params.max_new_tokens)[:, 0]
        device = self._policy.device
        index = torch.tensor(rows, device=device)
        self._uniforms_RM[index] = drawn_RM.to(device)
        self._limits_R[index] = torch.tensor(list(map(self._limit, games)), device=device)
        self._sizes_R[index] = 0
        self._sampling_R = self._sampling_R.index_fill(0, index, True)

    def _limit(self, game: PlayedGame) -> int:
        left = self._policy.max_positions - len(game.prompt) - len(game.ids)
        return min(self._params.max_new_tokens, left)

    def _keep(self, kept: Sequence[int], rows: torch.Tensor) -> None:
        self._games = [self._games[row] for row in kept]
        self._rows.keep(rows)
        self._limits_R, self._sizes_R = self._limits_R[rows], self._sizes_R[rows]
        self._ids_RM, self._logprobs_RM = self._ids_RM[rows], self._logprobs_RM[rows]
        self._uniforms_RM = self._uniforms_RM[rows]
        self._sampling_R = self._sampling_R[rows]

    def _fraction(self) -> float:
        """Return a lower bound of the finished part of the games, in turns of the maximum."""
        played = sum(
            len(game.messages) / game.question.max_turns if game.ended is None else 1
            for game in self._games
        )
        return (self._num_games - len(self._games) + played) / self._num_games
