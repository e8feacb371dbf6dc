"""Families that a node adds to those of its swarm: its own files, and what it accepted there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shoal_tasks.bundle import accepted_folder, bundle_of, files_here, write_accepted
from shoal_tasks.families import EASY
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import families_of, specs_of, unused_task_files, with_added
from shoal_tasks.task_file import load_task_file
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import Manifest, make_manifest
from shoal_wire.topic_keys import COMMON_KEY, key_of_digest
from shoal_wire.types import Digest, PeerId
from tests.support import factories as make
from tests.support.task_files import task_file

ROWS = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(9)]


def swarm(*specs: FamilySpec) -> Manifest:
    return make_manifest("added", families_of(specs or EASY))


def own_file(folder: Path, **fields: Any) -> str:
    return str(task_file(folder, fields.pop("name", "sums"), ROWS, **fields))


def accept(data_dir: Path, file: str, swarm: Digest) -> str:
    """Accept a task in a swarm; return its description's path."""
    spec = load_task_file(Path(file))
    folder = accepted_folder(data_dir, spec)
    folder.mkdir(parents=True)
    bundle = bundle_of(spec)
    for one, path in zip(bundle.files, files_here(spec), strict=True):
        (folder / one.name).write_bytes(path.read_bytes())
    (family,) = families_of([spec])
    return str(write_accepted(folder, family, bundle, sent_by=PeerId("p"), swarm=swarm))


def names(manifest: Manifest, *files: str) -> list[str]:
    return [spec.name for spec in specs_of(manifest, files)]


def test_an_own_file_is_added_behind_the_families_of_the_swarm(tmp_path: Path) -> None:
    manifest, file = swarm(), own_file(tmp_path)
    assert names(manifest, file) == [*(spec.name for spec in EASY), "sums"]
    assert unused_task_files(manifest, [file]) == ()
    extended = with_added(manifest, specs_of(manifest, [file]))
    assert (extended.digest, extended.raw) == (manifest.digest, manifest.raw)
    spec = load_task_file(Path(file))
    assert extended.keys["sums"] == key_of_digest(spec.digest) != COMMON_KEY
    task = make.task(family="sums", config_digest=spec.digest)
    assert manifest.key_of(task) == extended.key_of(task) == extended.keys["sums"]


def test_a_node_may_train_on_nothing_of_the_swarm_but_its_own(tmp_path: Path) -> None:
    theirs = load_task_file(task_file(tmp_path / "a", "words", ROWS, held_out=4))
    manifest = swarm(theirs)
    with pytest.raises(ManifestError, match="needs the file of 'words'"):
        specs_of(manifest)
    assert names(manifest, own_file(tmp_path / "b")) == ["sums"]


def test_a_task_is_added_in_the_swarm_in_which_it_was_accepted(tmp_path: Path) -> None:
    here, there = swarm(), swarm(EASY[0])
    file = accept(tmp_path / "data", own_file(tmp_path), here.digest)
    assert names(here, file)[-1] == "sums"
    assert names(there, file) == [EASY[0].name]
    content = json.loads(Path(file).read_text())
    assert content["swarm"] == here.digest.hex()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": EASY[0].name}, 'is "rows" here'),
        ({"rows": None, "environment": "textarena:GuessTheNumber-v0"}, "only one of a file"),
    ],
)
def test_what_cannot_be_added_is_named(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    manifest = swarm()
    try:
        file = own_file(tmp_path, **fields)
        specs_of(manifest, [file])
    except ManifestError:
        pytest.skip("textarena is not installed")
    assert names(manifest, file) == [spec.name for spec in EASY]
    (reason,) = unused_task_files(manifest, [file])
    assert re.search(why, reason)


def test_a_family_of_the_swarm_under_another_name_is_that_family(tmp_path: Path) -> None:
    theirs = load_task_file(task_file(tmp_path, "words", ROWS))
    assert names(swarm(theirs), own_file(tmp_path)) == ["words"]


def test_of_two_files_with_one_name_the_first_is_added(tmp_path: Path) -> None:
    files = [own_file(tmp_path / "a"), own_file(tmp_path / "b", held_out=3)]
    specs = specs_of(swarm(), files)
    assert [spec.path for spec in specs if spec.name == "sums"] == [
        load_task_file(Path(files[0])).path
    ]
