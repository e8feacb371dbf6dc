"""Whatever attackers do below the streams, one honest node stays intact, and so does its
reputation.

SHOAL_SIM_SEED=123 plays one attack, and SHOAL_REDTEAM_ATTACKS is the number of attacks in the
slow test. `python -m tests.redteam wire 123` plays one and, if it fails, reduces it to the steps
that are needed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal_p2p.net.windows import WindowedStream
from tests.redteam.wire_attack_run import (
    WIRE_ACTS,
    WireAttackRun,
    WireStep,
    draw_wire_attack,
    play_wire,
)

SEED = os.environ.get("SHOAL_SIM_SEED")
NUM_LONG = int(os.environ.get("SHOAL_REDTEAM_ATTACKS", "100"))
SLOW_ACTS = {"punches", "relayed_flood", "false_relay", "strangers_on_tcp"}
SLOW_ACTS |= {"half_upgraded", "renewals"}
"""Acts that wait for the victim's periodic work, or for its deadlines."""


def _steps(*acts: str) -> tuple[WireStep, ...]:
    return tuple(WireStep(who=n % 2, act=act, seed=n) for n, act in enumerate(acts))


def test_no_frames_streams_or_words_of_itself_harm_an_honest_node(tmp_path: Path) -> None:
    quick = sorted(WIRE_ACTS.keys() - SLOW_ACTS)
    acts = [*quick, *["half_open"] * 3]  # once is within the bound on a connection's streams
    attack = draw_wire_attack(int(SEED)) if SEED else WireAttackRun(seed=0, steps=_steps(*acts))
    assert play_wire(tmp_path / "node", attack).total() >= len(attack.steps) // 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_attack_of_many_harms_an_honest_node(tmp_path: Path) -> None:
    done = play_wire(tmp_path / "node", *map(draw_wire_attack, range(NUM_LONG)))
    assert done.keys() == WIRE_ACTS.keys()


def test_streams_that_stay_half_open_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library keeps each stream until its peer closes it, too."""
    monkeypatch.setattr(WindowedStream, "close", WindowedStream.close_write)
    with pytest.RaisesGroup(
        pytest.RaisesExc(AssertionError, match="streams on one connection"), flatten_subgroups=True
    ):
        play_wire(tmp_path / "node", WireAttackRun(seed=0, steps=_steps(*["half_open"] * 4)))
