"""How an experiment recognises its folder."""

from __future__ import annotations

from pathlib import Path

from shoal_lab.experiment.folder import is_done
from tests.lab.experiment.jobs import parse_flags, written


def test_a_job_is_named_by_all_that_decides_it(tmp_path: Path) -> None:
    one = parse_flags("--rounds", "2").jobs()[0]
    written(tmp_path, one)
    assert is_done(tmp_path, one)
    assert not is_done(tmp_path, parse_flags("--rounds", "3").jobs()[0])
    assert not is_done(tmp_path, parse_flags("--rounds", "2", "--set", "temperature=0.9").jobs()[0])
