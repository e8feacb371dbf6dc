"""A family's files as a bundle, and a folder of files that arrived: the same family, or refused."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from shoal_tasks.bundle import (
    ACCEPTED_FILE,
    accepted_examples,
    accepted_folder,
    accepted_task_files,
    bundle_error,
    bundle_of,
    files_here,
    load_accepted,
    write_accepted,
)
from shoal_tasks.errors import FamilyError
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import families_of
from shoal_tasks.task_file import examples_in, load_task_file, unshared_task_files
from shoal_wire.task_codec import decode_task_answer, encode_task_answer
from shoal_wire.types import Digest, PeerId
from tests.support.task_files import task_file

SENDER = PeerId("sender")
SWARM = Digest(bytes(32))
REWARD = "def reward(completions, **_):\n    return [float('1' in text) for text in completions]\n"
GAME = """
class Game:
    def reset(self, seed):
        return "say 1"
    def step(self, message):
        return "", 1.0, True
"""


def author_file(folder: Path, name: str = "sums", **fields: Any) -> Path:
    (folder / "parts").mkdir(parents=True)
    for place in ("reward.py", "parts/reward.py", "parts/one more.py"):
        (folder / place).write_text(f"{REWARD}# {place}\n")
    (folder / "game.py").write_text(GAME)
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(9)]
    is_game = "environment" in fields
    return task_file(folder, name, [] if is_game else rows, **{"share": True, **fields})


def accept(data_dir: Path, spec: FamilySpec, source: Path) -> Path:
    """Do what a node does with a task that it accepts, without the network between."""
    bundle = decode_task_answer(encode_task_answer(bundle_of(spec, examples_in(source))))
    assert bundle_error(spec, bundle) == ""  # type: ignore[arg-type]
    folder = accepted_folder(data_dir, spec)
    folder.mkdir(parents=True)
    for one, path in zip(bundle.files, files_here(spec), strict=True):  # type: ignore[union-attr]
        shutil.copyfile(path, folder / one.name)
    return write_accepted(
        folder,
        families_of([spec])[0],
        bundle,  # type: ignore[arg-type]
        sent_by=SENDER,
        swarm=SWARM,
    )


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["rows.jsonl"]),
        ({"verifier": "math", "held_out": 3, "system": "Be short."}, ["rows.jsonl"]),
        ({"reward": "reward.py"}, ["rows.jsonl", "reward.py"]),
        (
            {"reward": ["reward.py", "parts/reward.py", "reward.py:reward"]},
            ["rows.jsonl", "reward.py", "code_2.py"],
        ),
        ({"reward": "parts/one more.py"}, ["rows.jsonl", "code_1.py"]),
        ({"environment": "game.py"}, ["game.py"]),
        ({"title": "Summen ✓", "licence": "CC0", "description": "Two."}, ["rows.jsonl"]),
        ({"good": ["#### {answer}"], "bad": ["0"]}, ["rows.jsonl"]),
    ],
)
def test_an_accepted_task_is_the_family_of_its_author(
    tmp_path: Path, fields: dict[str, Any], names: list[str]
) -> None:
    source = author_file(tmp_path / "author", **fields)
    spec = load_task_file(source)
    path = accept(tmp_path / "joiner", spec, source)
    assert [one.name for one in bundle_of(spec).files] == names
    assert accepted_task_files(tmp_path / "joiner") == (str(path),)
    found = load_task_file(path)
    assert (found, found.digest) == (spec, spec.digest)
    assert all(str(one).startswith(str(tmp_path / "joiner")) for one in files_here(found))
    assert accepted_examples(path) == examples_in(source)
    assert found.share, "who accepted a task serves it"
    assert bundle_of(found, examples_in(path)).files[0] == bundle_of(spec).files[0]


def test_the_texts_for_people_are_part_of_the_family(tmp_path: Path) -> None:
    digests = {
        load_task_file(author_file(tmp_path / str(n), **fields)).digest
        for n, fields in enumerate([{}, {"title": "a"}, {"title": "b"}, {"licence": "a"}])
    }
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"reward": "reward.py", "local": True}, "each node has a reward of its own"),
        ({"environment": "textarena:2048-v0-ultra-easy"}, "this family has no file"),
        ({"title": "x" * 101}, "title has 101 characters, at most 100"),
        ({"description": "x" * 1001}, "description has 1,001 characters, at most 1,000"),
        ({"title": "one\ntwo"}, "title must be one line of printable characters"),
        ({"description": "é" * 1000, "system": "é" * 1500}, r"configuration .* has 5,\d+ bytes"),
        ({"share": "yes"}, "share has the wrong type"),
    ],
)
def test_what_does_not_travel_is_one_line(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    source = author_file(tmp_path / "author", **fields)
    with pytest.raises(FamilyError, match=why) as caught:
        load_task_file(source)
    assert "\n" not in str(caught.value)


def test_files_of_which_a_friend_needs_a_copy_are_named(tmp_path: Path) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "shared": {},
        "kept": {"share": None},
        "refused": {"share": False, "reward": "reward.py"},
        "game": {"share": None, "environment": "game.py"},
        "library": {"share": None, "environment": "textarena:2048-v0-ultra-easy"},
        "server": {"share": None, "environment": "ws://127.0.0.1:1"},
    }
    files = {kind: str(author_file(tmp_path / kind, **kinds[kind])) for kind in kinds}
    hub = task_file(tmp_path, "hub", rows="hf:org/rows")
    spec = load_task_file(Path(files["shared"]))
    accepted = accept(tmp_path / "joiner", spec, Path(files["shared"]))
    given = [*files.values(), str(hub), str(accepted), str(tmp_path / "gone.toml")]
    assert unshared_task_files(given) == (
        *(files[kind] for kind in ("kept", "refused", "game")),
        str(hub),
    )


def test_a_bundle_of_another_family_is_found_out(tmp_path: Path) -> None:
    specs = [
        load_task_file(author_file(tmp_path / str(n), **fields))
        for n, fields in enumerate([{}, {"reward": "reward.py"}, {"environment": "game.py"}])
    ]
    for one in specs:
        for other in specs:
            assert (bundle_error(one, bundle_of(other)) == "") == (one is other)


def test_a_file_that_changed_since_the_start_is_not_described(tmp_path: Path) -> None:
    spec = load_task_file(author_file(tmp_path / "author", reward="reward.py"))
    Path(spec.reward_paths[0]).write_text("def reward(completions): return [1]\n")
    with pytest.raises(FamilyError, match="has changed since the start"):
        bundle_of(spec)


def test_a_file_that_was_deleted_is_one_line_with_the_way_back(tmp_path: Path) -> None:
    source = author_file(tmp_path / "author", reward="reward.py")
    path = accept(tmp_path / "joiner", load_task_file(source), source)
    (path.parent / "reward.py").unlink()
    with pytest.raises(
        FamilyError, match=r"reward\.py is missing: delete this folder, and a start"
    ):
        load_task_file(path)


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Return the text with a piece cut out, doubled, replaced, or a value of another type."""
    at = rng.randrange(len(content))
    end = min(len(content), at + rng.randrange(1, 40))
    match rng.randrange(4):
        case 0:
            return content[:at] + content[end:]
        case 1:
            return content[:end] + content[at:]
        case 2:
            return content[:at] + bytes(rng.randrange(256) for _ in range(end - at)) + content[end:]
        case _:
            table = json.loads(content)
            where = rng.choice([table, table["family"]])
            where[rng.choice(sorted(where))] = rng.choice([None, 7, [], {}, "", "x" * 300, [None]])
            return json.dumps(table).encode()


def test_a_damaged_description_is_one_line_or_the_same_family(tmp_path: Path) -> None:
    source = author_file(tmp_path / "author", reward="reward.py")
    spec = load_task_file(source)
    path = accept(tmp_path / "joiner", spec, source)
    content, rng, refused = path.read_bytes(), random.Random(7), 0
    for _ in range(600):
        path.write_bytes(damaged(rng, content))
        try:
            found = load_accepted(path)
        except FamilyError as error:
            refused += 1
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
        else:
            assert all(one.parent == path.parent for one in files_here(found))
    assert refused > 300
    assert path.name == ACCEPTED_FILE
