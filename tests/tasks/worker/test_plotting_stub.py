"""Libraries that the worker loads only when needed, tested in a new process."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from shoal_tasks.worker import serving
from shoal_tasks.worker.generate import _library
assert "reasoning_gym" not in sys.modules  # most of what a worker's start costs
create_dataset = _library().create_dataset
assert not any(name.startswith(("matplotlib", "mpl_toolkits")) for name in sys.modules)
game = create_dataset("game_of_life", seed=1, size=2)
assert game.score_answer(game[1]["answer"], game[1]) == 1.0
import matplotlib.colors  # as a user's reward may
assert matplotlib.colors.to_rgb("red") == (1, 0, 0)
"""


@pytest.mark.slow
def test_the_library_that_draws_is_left_out_and_is_there_for_who_imports_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
