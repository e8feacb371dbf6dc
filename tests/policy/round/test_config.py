"""The seeds by which a round is played."""

from __future__ import annotations

from shoal_policy.round.config import Round, round_config
from shoal_settings.schema import Settings


def test_each_purpose_of_each_round_has_a_seed_of_its_own() -> None:
    def seed(number: int, purpose: str, run: int = 1) -> int:
        config = round_config(Settings(), seed=run)
        return Round(number=number, policy_version=0, config=config).seed(purpose)

    seeds = [seed(1, "tasks"), seed(2, "tasks"), seed(1, "generate"), seed(1, "tasks", run=2)]
    assert len(set(seeds)) == 4
    assert all(0 <= one < 1 << 63 for one in seeds)
    # For ever: a resumed run draws what the run before it would have drawn.
    assert seeds[0] == 9151191212924895428
