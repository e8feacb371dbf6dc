"""The words on planting in docs/archive/presets.md are about the preset's arms.

Its table is of kept rounds: `tests/lab/experiment/test_kept_presets.py`, in the slow suite.
"""

from __future__ import annotations

from shoal_lab.experiment.presets import PRESETS
from tests.lab.experiment.kept_rounds import DOCS

PAGE = DOCS / "archive" / "presets.md"


def test_every_arm_of_the_table_is_an_arm_of_the_preset() -> None:
    told = PAGE.read_text()
    for arm in PRESETS["planted"].arms(6):
        attack, defence = arm.name.split(": ")
        share = "–" if attack == "clean" else "25%"
        assert f"| {attack.split()[0]} | {share} | {defence} |" in told
