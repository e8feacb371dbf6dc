"""An experiment by real processes: bootstrap, nodes and trainers on loopback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.experiment.command import main
from shoal.experiment.flags import make_experiment, parser
from shoal.experiment.reading.results import load_runs

FLAGS = [
    *("paper", "--swarm", "--nodes", "2", "--seeds", "1", "--rounds", "4", "--jobs", "0"),
    *("--arm", "8/0,local=2", "--arm", "2/2", "--model", "tiny", "--no-figures"),
    *("--set", "completions=4", "--set", "eval_every=2", "--set", "eval_per_family=1"),
]


@pytest.mark.slow
def test_a_real_swarm_leaves_the_same_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*FLAGS, "--out", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["mode"] == "swarm"
    assert document["jobs_finished"] == 3
    runs = load_runs(tmp_path, make_experiment(parser().parse_args(FLAGS)))
    for run in runs:
        assert (run.rounds, run.evaluated, len(run.fresh)) == (4, (0, 2, 4), 2)
