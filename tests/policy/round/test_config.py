"""What a round is played by: from settings, balance and memory, and its own seeds."""

from __future__ import annotations

from dataclasses import replace

from policy.choice.balance import Balance
from policy.round.config import Round, balance_from_settings, config_of_round, round_config
from shoal_settings.schema import Settings


def test_a_round_takes_i_and_j_from_the_balance_and_the_budget_from_memory() -> None:
    config = round_config(Settings(local=3, external=5, token_budget=4096), seed=1)
    moved = config_of_round(config, Balance(local=6, total=8), 1024)
    assert (moved.num_local, moved.num_external, moved.grpo.token_budget) == (6, 2, 1024)
    assert (config.num_local, config.num_external, config.grpo.token_budget) == (3, 5, 4096)
    # Nothing else differs, and without a balance I and J stay.
    grpo = replace(moved.grpo, token_budget=4096)
    assert moved.looks_further
    back = replace(moved, num_local=3, num_external=5, grpo=grpo, looks_further=False)
    assert back == config
    assert config_of_round(config, None, 4096) == config


def test_each_purpose_of_each_round_has_a_seed_of_its_own() -> None:
    def seed(number: int, purpose: str, run: int = 1) -> int:
        config = round_config(Settings(), seed=run)
        return Round(number=number, policy_version=0, config=config).seed(purpose)

    seeds = [seed(1, "tasks"), seed(2, "tasks"), seed(1, "generate"), seed(1, "tasks", run=2)]
    assert len(set(seeds)) == 4
    assert all(0 <= one < 1 << 63 for one in seeds)
    # For ever: a resumed run draws what the run before it would have drawn.
    assert seeds[0] == 9151191212924895428


def test_a_balance_goes_on_from_a_checkpoint_of_the_same_i_and_j_only() -> None:
    settings = Settings(local=2, external=6, balance="adaptive")
    saved = Balance(local=3, total=8).to_json()
    resumed = balance_from_settings(settings, saved)
    assert resumed is not None
    assert resumed.local == 3
    begun = balance_from_settings(settings, Balance(local=3, total=9).to_json())
    assert begun == Balance.start(2, 6)
    assert balance_from_settings(Settings(balance="fixed"), saved) is None
