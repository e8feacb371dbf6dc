"""An experiment by real processes: bootstrap, nodes and trainers on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shoal_base.log_file import BoundedFile
from shoal_lab.experiment.command import main
from shoal_lab.experiment.flags import make_experiment, parser
from shoal_lab.experiment.playing.swarm_run import _keep_log
from shoal_lab.experiment.reading.results import load_runs

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


def test_what_a_process_says_is_kept_within_a_bound(tmp_path: Path) -> None:
    talk = "import sys\nfor n in range(9000): print('line', n, file=sys.stderr)"
    with subprocess.Popen([sys.executable, "-c", talk], stderr=subprocess.PIPE) as process:
        _keep_log(process, BoundedFile(tmp_path / "log.txt", 40_000))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 40_000
    assert (tmp_path / "log.txt").read_text().endswith("line 8999\n")
