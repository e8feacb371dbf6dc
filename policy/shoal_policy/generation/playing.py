"""Games played by rows that keep their keys and values: a turn costs its own tokens alone.

    all rows speak, a token each ──▶ a quarter have ended their messages ──▶ `play` answers these
         ▲                                                                        │
         └── in the next pass each of them reads what it heard, the others speak ◀┘

So games of one batch are at different turns, and none waits for the longest message of a turn. Who
waits, and how long, follows from counts of tokens and never from a clock: a round that is played
again goes through the same batches.

Shapes: P prompts, L games of each, R rows still playing, M new tokens of a message at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shoal_policy.generation.game import PlayedGame, go_on, message_seed
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local import (
    COMPACT_BELOW,
    GenerationBatch,
    OnStep,
    check,
    in_chunks,
    sample_of,
    sample_tokens,
    uniforms,
)
from shoal_policy.generation.multi_turn_decoder import MultiTurnDecoder
from shoal_policy.generation.ready import MAX_ROWS, rows_at_once
from shoal_policy.generation.transcript import PlayGames
from shoal_policy.rollouts import Question

_ANSWERED_SHARE = 1.0 - COMPACT_BELOW
"""Share of the rows that have ended a message before these are answered. Until then they go on in
the batch for nothing, as rows that ended do in `local`; each answer costs a call of the worker."""


def play_held(
    asking: GenerationRequest,
    questions: Sequence[Question],
    prompts: Sequence[Sequence[int]],
    *,
    places: Sequence[int],
    uniforms_PLM: torch.Tensor,
    on_step: OnStep,
) -> list[list[PlayedGame]]:
    """Return the games of each of these questions, over.

    `places` are those of each question's first game among all that is asked, and `uniforms_PLM`
    what first messages are drawn with. Raises what `local.generate` and `asking.play` raise.
    """
    policy, params, num_completions = asking.policy, asking.sampling, asking.num_completions
    check(policy, prompts, num_completions, params)

    def played(chunk: GenerationBatch, told: OnStep) -> list[PlayedGame]:
        games = [
            PlayedGame(question=questions[index], prompt=prompts[index], place=places[index] + one)
            for index, one in chunk.places()
        ]
        batch = _Batch(asking, games, chunk.end - chunk.first)
        batch.run(chunk.of(uniforms_PLM).to(policy.device), asking.play, told)
        return games

    # What environments will say is not known: a message's length for each of their answers.
    most_turns = max(question.max_turns for question in questions)
    longest = max(map(len, prompts)) + 2 * most_turns * params.max_new_tokens
    rows = min(MAX_ROWS, len(prompts) * num_completions)
    rows = rows_at_once(policy, rows, min(longest, policy.max_positions))
    return in_chunks(
        policy, list(map(len, prompts)), num_completions, rows, played, on_step=on_step
    )


class _Batch:
    """Games that are played at once. Row by row: `_games` and all tensors."""

    def __init__(self, asking: GenerationRequest, games: Sequence[PlayedGame], repeat: int) -> None:
        policy, params = asking.policy, asking.sampling
        self._policy, self._params, self._seed = policy, params, asking.seed
        self._games, self._num_games = list(games), len(games)
        device, shape = policy.device, (len(games), params.max_new_tokens)
        prompts = [game.prompt for game in games[::repeat]]
        self._rows = MultiTurnDecoder(policy, prompts, repeat, params.max_new_tokens)
        self._eos = torch.tensor(sorted(policy.eos_ids), device=device)
        self._limits_R = torch.tensor([self._limit(game) for game in games], device=device)
        self._sizes_R = torch.zeros_like(self._limits_R)
        self._ids_RM = torch.zeros(shape, dtype=torch.long, device=device)
        self._logprobs_RM = torch.zeros(shape, device=device)
        self._speaking_R = torch.ones(len(games), dtype=torch.bool, device=device)

    def run(self, uniforms_RM: torch.Tensor, play: PlayGames, on_step: OnStep) -> None:
        """Play until every game is over."""
        self._uniforms_RM = uniforms_RM.clone()
        logits_RV = self._rows.prefill()
        while True:
            ids_R = self._draw(logits_RV)
            num_playing = sum(game.ended is None for game in self._games)
            num_speaking = int(self._speaking_R.sum())
            speaking_R, heard = self._speaking_R, {}
            num_waiting = num_playing - num_speaking
            if num_waiting and num_waiting >= _ANSWERED_SHARE * num_playing:
                heard = self._answer(play)
                num_playing = num_speaking + len(heard)
            on_step(self._num_games - num_playing, self._fraction())
            if not num_playing:
                return
            if num_playing <= COMPACT_BELOW * len(self._games):
                kept = [row for row, game in enumerate(self._games) if game.ended is None]
                heard = {kept.index(row): ids for row, ids in heard.items()}
                rows = torch.tensor(kept, device=ids_R.device)
                ids_R, speaking_R = ids_R[rows], speaking_R[rows]
                self._keep(kept, rows)
            logits_RV = self._rows.step(ids_R, speaking_R, heard)

    def _draw(self, logits_RV: torch.Tensor) -> torch.Tensor:
        """Draw a token for each row that speaks; note which of them have ended their message."""
        at_R1 = self._sizes_R.clamp(max=self._params.max_new_tokens - 1)[:, None]
        uniforms_R = self._uniforms_RM.gather(1, at_R1)[:, 0]
        ids_R, logprobs_R = sample_tokens(logits_RV, uniforms_R, self._params)
        for noted_RM, new_R in ((self._ids_RM, ids_R), (self._logprobs_RM, logprobs_R)):
            before_R = noted_RM.gather(1, at_R1)[:, 0]
            noted_RM.scatter_(1, at_R1, torch.where(self._speaking_R, new_R, before_R)[:, None])
        self._sizes_R = self._sizes_R + self._speaking_R
        ended_R = torch.isin(ids_R, self._eos) | (self._sizes_R >= self._limits_R)
        self._speaking_R = self._speaking_R & ~ended_R
        return ids_R

    def _answer(self, play: PlayGames) -> dict[int, list[int]]:
        """Have the environments answer all rows that wait; return what those that go on read."""
        speaking = self._speaking_R.tolist()
        waiting = [
            row for row, game in enumerate(self._games) if game.ended is None and not speaking[row]
        ]
        lasts: dict[int, int] = {}
        noted = self._ids_RM[waiting], self._logprobs_RM[waiting], self._sizes_R[waiting]
        for row, ids, logprobs, size in zip(waiting, *(one.tolist() for one in noted), strict=True):
            sample = sample_of(self._policy, ids[:size], logprobs[:size])
            self._games[row].add_message(self._policy, sample)
            lasts[row] = sample.ids[-1]
        before = {row: len(self._games[row].ids) for row in waiting}
        go_on(self._policy, [self._games[row] for row in waiting], play)
        heard = {
            row: [lasts[row], *self._games[row].ids[before[row] :]]
            for row in waiting
            if self._games[row].ended is None
        }
        self._begin_messages(list(heard))
        return heard

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
        self._speaking_R = self._speaking_R.index_fill(0, index, True)

    def _limit(self, game: PlayedGame) -> int:
        left = self._policy.max_positions - len(game.prompt) - len(game.ids)
        return min(self._params.max_new_tokens, left)

    def _keep(self, kept: Sequence[int], rows: torch.Tensor) -> None:
        self._games = [self._games[row] for row in kept]
        self._rows.keep(rows)
        self._limits_R, self._sizes_R = self._limits_R[rows], self._sizes_R[rows]
        self._ids_RM, self._logprobs_RM = self._ids_RM[rows], self._logprobs_RM[rows]
        self._uniforms_RM = self._uniforms_RM[rows]
        self._speaking_R = self._speaking_R[rows]

    def _fraction(self) -> float:
        """The part of the games that is over, at the least: by turns, of the most there can be."""
        played = sum(
            len(game.messages) / game.question.max_turns if game.ended is None else 1
            for game in self._games
        )
        return (self._num_games - len(self._games) + played) / self._num_games
