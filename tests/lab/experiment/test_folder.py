"""What a folder is taken to hold."""

from __future__ import annotations

import json
from pathlib import Path

from shoal_lab.experiment.folder import is_done
from tests.lab.experiment.test_flags import asked


def test_a_job_is_named_by_all_that_decides_it(tmp_path: Path) -> None:
    one = asked("--rounds", "2").jobs()[0]
    path = tmp_path / one.file_name
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(one.to_json()) + "\n")
    assert is_done(tmp_path, one)
    assert not is_done(tmp_path, asked("--rounds", "3").jobs()[0])
    assert not is_done(tmp_path, asked("--rounds", "2", "--set", "temperature=0.9").jobs()[0])
