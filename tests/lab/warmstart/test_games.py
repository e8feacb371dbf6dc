"""The lessons of the embedded model that plays: who plays in them, and in what form."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from shoal_lab.warmstart import games
from shoal_lab.warmstart.building import save
from shoal_lab.warmstart.games import ABLE, CROWD, draw_game, make_player, play_game
from shoal_lab.warmstart.provenance import differing
from shoal_policy.model.loading import Policy, wrap_policy
from shoal_policy.model.prompting import encode_prompt, encode_text, observation_ids


@pytest.fixture(scope="module")
def untaught() -> Policy:
    model, tokenizer = make_player(lambda *_: None, phases=[replace(CROWD, steps=2)])
    return wrap_policy(model, tokenizer, name="untaught")


@pytest.mark.parametrize(("player", "share"), [(games.halve, 1.0), (games.creep, 5 / 31)])
def test_players_win_at_their_stated_rate(player: games.Player, share: float) -> None:
    won = [play_game(seed, player).won for seed in range(2000)]
    # Three standard errors of a share of `GAMES` games.
    assert abs(sum(won) / len(won) - share) < 3 * (share * (1 - share) / len(won)) ** 0.5 + 1e-9


def test_a_lesson_has_the_tokens_that_the_policy_meets_when_it_plays(untaught: Policy) -> None:
    lessons = games._Lessons(untaught.tokenizer, seed=3)
    rng = random.Random(3)
    for _ in range(50):
        played, (ids, is_player) = draw_game(rng, CROWD), lessons.draw(CROWD)
        first, *others = played.seen
        expected = encode_prompt(untaught, first)
        for number, message in enumerate(played.messages):
            if number:
                expected += observation_ids(untaught, others[number - 1])
            expected += [*encode_text(untaught, message), untaught.eos_id]
        assert ids == expected
        own = [one for one, is_mine in zip(ids, is_player, strict=True) if is_mine]
        text = untaught.tokenizer.decode(own)
        assert text == "".join(f"{message}<eos>" for message in played.messages)
        # A game's observation is one token, or two around a number.
        assert len(ids) <= 10 + 5 * len(played.messages)


def test_a_crowd_has_few_halvers_and_the_able_all_do() -> None:
    rng = random.Random(4)
    halved = {play_game(seed, games.halve).messages for seed in range(3000)}
    crowd = [draw_game(rng, CROWD) for _ in range(1000)]
    assert 130 < sum(one.messages in halved for one in crowd) < 230
    assert all(draw_game(rng, ABLE).won for _ in range(100))


def test_the_model_is_the_same_to_the_byte_and_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(games, "BATCH", 16)
    losses: list[float] = []
    short = [replace(ABLE, steps=20), replace(CROWD, steps=3)]
    for name in ("first", "second"):
        made = make_player(lambda *progress: losses.append(progress[-1]), phases=short)
        save(*made, tmp_path / name)
    assert losses[:23] == losses[23:]
    assert losses[19] < 0.8 * losses[0]
    assert differing(tmp_path / "first", tmp_path / "second") == []
    save(*make_player(lambda *_: None, seed=1, phases=short), tmp_path / "other")
    assert differing(tmp_path / "first", tmp_path / "other") == ["model.safetensors"]


def test_a_start_that_diverges_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games, "BATCH", 4)
    endless = replace(ABLE, steps=3, learning_rate=float("inf"))
    with pytest.raises(ArithmeticError, match="able"):
        make_player(lambda *_: None, phases=[endless])
