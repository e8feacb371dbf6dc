"""A folder's memory of its run; nothing in its files ends a start."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.run_memory import (
    MANIFEST_FILE,
    TASK_FILES_FILE,
    load_manifest,
    load_memory,
    save_manifest,
    save_memory,
    save_task_files,
    saved_task_files,
)
from tests.support import factories as make

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["founded", "files", "had", "path", "family", "keys", "x"]), inner
        )
    ),
)


def test_task_files_are_noted_by_whole_paths_of_the_latest_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert saved_task_files(tmp_path) == ()
    monkeypatch.chdir(tmp_path)
    save_task_files(tmp_path, ["sums.toml", "/else/where.toml"])
    assert saved_task_files(tmp_path) == (str(tmp_path / "sums.toml"), "/else/where.toml")
    save_task_files(tmp_path, [])
    assert saved_task_files(tmp_path) == ()


@given(
    st.binary(max_size=64)
    | st.text('[]{}"0,a').map(str.encode)
    | JSON.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=64),
)
def test_damaged_files_are_as_good_as_none(notes: bytes, manifest: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / TASK_FILES_FILE).write_bytes(notes)
        (folder / MANIFEST_FILE).write_bytes(manifest)
        memory = load_memory(folder)
        assert memory.manifest is None
        assert all(isinstance(one.path, str) for one in memory.files)
        assert all(isinstance(one, str) for one in (*memory.had, *saved_task_files(folder)))


def test_a_run_is_remembered_with_the_families_that_were_there(tmp_path: Path) -> None:
    manifest = make.swarm()
    save_memory(tmp_path, manifest, [], families=make.SPECS, is_founded=True)
    memory = load_memory(tmp_path)
    assert memory.manifest == manifest and memory.is_founded
    assert memory.had == {spec.digest.hex() for spec in make.SPECS}


def test_a_manifest_survives_and_a_damaged_one_is_named_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load_manifest(tmp_path) is None
    manifest = make.swarm()
    save_manifest(tmp_path, manifest)
    assert load_manifest(tmp_path) == manifest
    (tmp_path / MANIFEST_FILE).write_bytes(manifest.raw[:-3])
    assert load_manifest(tmp_path) is None
    assert "ignoring the saved manifest" in caplog.text
