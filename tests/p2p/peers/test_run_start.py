"""Generated pairs of starts in one folder: each resumes, or is refused with both ways to go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from shoal_base.bounded import LINE_CHARS
from shoal_p2p.peers.manifest_source import ManifestSource
from shoal_p2p.peers.run_start import check_run
from shoal_settings.schema import Settings
from shoal_tasks.run_check import RunMismatchError
from shoal_tasks.run_memory import MANIFEST_FILE, TASK_FILES_FILE, load_manifest, save_manifest
from tests.support import factories as make
from tests.support.nodes import fresh_identity, open_test_host

IDENTITY = fresh_identity()
ME = IDENTITY.peer_id
ROWS: Final = [{"answer": str(n + 2), "question": f"{n} + 2?"} for n in range(12)]
REWARD: Final = "def reward(completions, **columns):\n    return [1.0] * len(completions)\n"


@dataclass
class Start:
    """What a user brings and types: one task file of their own, and flags."""

    folder: str = "mine"
    """Where the files lie."""
    rows: list[dict[str, str]] = field(default_factory=lambda: [dict(row) for row in ROWS])
    is_csv: bool = False
    keys: dict[str, Any] = field(default_factory=lambda: {"prompt": "{question}"})
    reward: str = ""
    more: tuple[str, ...] = ()
    """Names of further families, each with a file of its own."""
    is_turned: bool = False
    """The files are named in the reverse order."""
    presets: tuple[str, ...] = ()
    """Named with the files."""
    flags: dict[str, Any] = field(default_factory=dict)

    def settings(self, root: Path) -> Settings:
        """Write the files and return the settings of the start."""
        home = root / self.folder
        home.mkdir(exist_ok=True)
        files = [self._task_file(home, name) for name in ("sums", *self.more)]
        if self.is_turned:
            files.reverse()
        given = {"tasks": (*self.presets, *files), "data_dir": root / "run"}
        return Settings(**{**given, **self.flags})

    def _task_file(self, home: Path, name: str) -> str:
        rows = home / f"{name}.{'csv' if self.is_csv else 'jsonl'}"
        lines = [json.dumps(row) for row in self.rows]
        if self.is_csv:
            lines = ["answer,question", *(f"{r['answer']},{r['question']}" for r in self.rows)]
        rows.write_text("\n".join(lines) + "\n")
        keys = {"name": name, "rows": rows.name, **self.keys}
        if self.reward:
            (home / "reward.py").write_text(self.reward)
            keys["reward"] = "reward.py"
        file = home / f"{name}.toml"
        file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
        return str(file)


def edited(row: int) -> list[dict[str, str]]:
    return [{**one, "answer": "99"} if n == row else one for n, one in enumerate(ROWS)]


RESUMES: Final = ""
CASES: Final[dict[str, tuple[Start, str]]] = {
    "nothing": (Start(), RESUMES),
    "the same files elsewhere": (Start(folder="moved"), RESUMES),
    "the same rows as CSV": (Start(is_csv=True), RESUMES),
    "another model": (Start(flags={"model": "tiny-sparse"}), RESUMES),  # the trainer refuses it
    "another key of the network": (Start(flags={"swarm_key": "other.key"}), RESUMES),
    "more rounds": (Start(flags={"rounds": 9, "local": 2}), RESUMES),
    "first row edited": (Start(rows=edited(0)), "rows of 'sums' differ from those of the last run"),
    "last row edited": (Start(rows=edited(11)), "rows of 'sums' differ"),
    "rows in another order": (Start(rows=ROWS[::-1]), "rows of 'sums' differ"),
    "a row less": (Start(rows=ROWS[:-1]), "rows of 'sums' differ"),
    "prompt edited": (Start(keys={"prompt": "{question}!"}), "prompt of 'sums' changed"),
    "other columns": (
        Start(keys={"question": "answer", "answer": "question"}),
        "answer and prompt and question of 'sums' changed",
    ),
    "edited rows, and a key that shapes none": (
        Start(rows=edited(0), keys={"prompt": "{question}", "good": ["2"]}),
        "rows of 'sums' differ",
    ),
    "held out": (
        Start(keys={"prompt": "{question}", "held_out": 5}),
        "held_out of 'sums' is 5 now and 1 then",
    ),
    "system turn": (Start(keys={"prompt": "{question}", "system": "Hi"}), "system of 'sums'"),
    "answer format": (
        Start(keys={"prompt": "{question}", "answer_format": "plain"}),
        "answer_format of 'sums'",
    ),
    "weight": (Start(keys={"prompt": "{question}", "weight": 2.0}), "weight of 'sums'"),
    "a reward in place of a verifier": (Start(reward=REWARD), "verifier of 'sums'"),
    "another name of the family": (
        Start(keys={"prompt": "{question}", "name": "other"}),
        "without 'sums', with 'other'",
    ),
    "a family more": (Start(more=("more",)), "with 'more'"),
    "a preset more": (Start(presets=("easy",)), "with "),
    "another preset": (Start(flags={"tasks": "chat-1"}), "without 'sums'"),
    "another name of the swarm": (
        Start(flags={"swarm_name": "ours"}),
        "its name was 'shoal' and is 'ours'",
    ),
    "age": (Start(flags={"max_age_seconds": 60}), "max_age_seconds was 3600 and is 60"),
    "inline tasks": (Start(flags={"inline_tasks": True}), "inline_tasks was False and is True"),
    "shards": (Start(flags={"shards": 2}), "shards was 1 and is 2"),
    "a list of peers": (Start(flags={"allow_peers": (ME,)}), "another allow_peers"),
}


async def _remembered(settings: Settings) -> None:
    async with open_test_host(identity=IDENTITY) as host:
        source = ManifestSource(host=host, data_dir=settings.data_dir, settings=settings)
        await source.find()


def start(settings: Settings, *named: str) -> None:
    """Start as a node does, up to the moment at which its folder remembers the run."""
    settings.data_dir.mkdir(exist_ok=True)
    origins = dict.fromkeys(Settings.model_fields, "default") | dict.fromkeys(named, "--flag")
    check_run(settings, origins, ME)
    trio.run(_remembered, settings)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refusal(settings: Settings, *named: str) -> str:
    before = content(settings.data_dir)
    with pytest.raises(RunMismatchError) as refused:
        start(settings, *named)
    line = str(refused.value)
    assert len(line.replace(str(settings.data_dir), "run")) < LINE_CHARS - 20
    assert "\n" not in line and "--data-dir" in line and "--new-run" in line
    assert content(settings.data_dir) == before, "a refused start changes nothing"
    return line


@pytest.mark.parametrize("case", CASES)
def test_a_second_start_that_differs_in_one_respect(tmp_path: Path, case: str) -> None:
    second, words = CASES[case]
    start(Start().settings(tmp_path))
    changed = second.settings(tmp_path)
    if words == RESUMES:
        start(changed)
        start(Start().settings(tmp_path))
        return
    assert words in refusal(changed)
    start(changed.model_copy(update={"new_run": True}))
    start(changed)
    refusal(Start().settings(tmp_path))
    start(Start().settings(tmp_path).model_copy(update={"resume": False}))
    start(Start().settings(tmp_path))


@pytest.mark.parametrize(
    ("reward", "words"),
    [(REWARD, RESUMES), (REWARD.replace("1.0", "0.5"), "the reward file of 'sums' differs")],
)
def test_a_second_start_with_a_reward(tmp_path: Path, reward: str, words: str) -> None:
    start(Start(reward=REWARD).settings(tmp_path))
    changed = Start(reward=reward)
    if words == RESUMES:
        start(changed.settings(tmp_path))
    else:
        assert words in refusal(changed.settings(tmp_path))


def test_the_order_of_task_files_is_named(tmp_path: Path) -> None:
    start(Start(more=("more",)).settings(tmp_path))
    turned = Start(more=("more",), is_turned=True)
    assert "another order" in refusal(turned.settings(tmp_path))


@pytest.mark.parametrize(("one", "other"), list(permutations(("rows", "prompt", "held_out"), 2)))
def test_several_edits_are_named_together(tmp_path: Path, one: str, other: str) -> None:
    edits: dict[str, Callable[[Start], None]] = {
        "rows": lambda start: setattr(start, "rows", edited(3)),
        "prompt": lambda start: start.keys.update(prompt="{question}?"),
        "held_out": lambda start: start.keys.update(held_out=4),
    }
    start(Start().settings(tmp_path))
    changed = Start()
    edits[one](changed)
    edits[other](changed)
    line = refusal(changed.settings(tmp_path))
    expected = {"rows", "prompt", "held_out"} & {one, other}
    if expected == {"rows", "prompt"}:
        expected = {"prompt"}  # it changes every question
    assert all(f"{name} of 'sums'" in line for name in expected)


@pytest.mark.parametrize("damaged", [MANIFEST_FILE, TASK_FILES_FILE])
@pytest.mark.parametrize("what", [b"", b"\xff" * 40, b"[]", b'{"founded": true, "files": [{}]}'])
def test_a_damaged_memory_ends_no_start(tmp_path: Path, damaged: str, what: bytes) -> None:
    settings = Start().settings(tmp_path)
    start(settings)
    (settings.data_dir / damaged).write_bytes(what)
    start(settings)
    assert load_manifest(settings.data_dir) is not None


def test_a_folder_without_memory_goes_by_its_checkpoint(tmp_path: Path) -> None:
    settings = Start().settings(tmp_path)
    start(settings)
    then = load_manifest(settings.data_dir)
    assert then is not None
    checkpoint = settings.data_dir / "checkpoints" / "round-000003"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text(json.dumps({"swarm": then.digest.hex()}))
    (settings.data_dir / MANIFEST_FILE).unlink()
    other = settings.model_copy(update={"swarm_name": "other"})
    with pytest.raises(
        RunMismatchError, match=rf"checkpoint of swarm {then.short_name}.*--new-run"
    ):
        start(other)
    start(settings)


@pytest.fixture
def joined(tmp_path: Path) -> Path:
    """A folder that has joined a swarm of others."""
    folder = tmp_path / "run"
    folder.mkdir()
    save_manifest(folder, make.swarm("theirs"))
    return folder


def test_a_joined_folder_goes_on_without_its_bootstrap(joined: Path) -> None:
    plain = Settings(data_dir=joined)
    start(plain)
    start(plain, "rounds", "model")
    assert load_manifest(joined) == make.swarm("theirs")
    assert "theirs" in refusal(plain, "tasks")
    assert "its name was 'theirs'" in refusal(plain, "swarm_name")
    start(plain.model_copy(update={"new_run": True}), "tasks")
    assert load_manifest(joined) != make.swarm("theirs")


def test_an_invitation_to_another_swarm_is_refused(joined: Path) -> None:
    mine, other = (make.swarm(name).digest.hex() for name in ("theirs", "other"))
    address = f"/ip4/127.0.0.1/tcp/1/p2p/{ME}"
    settings = Settings(data_dir=joined, bootstrap=(address,), swarm_id=mine)
    origins = dict.fromkeys(Settings.model_fields, "default")
    check_run(settings, origins, ME)
    elsewhere = settings.model_copy(update={"swarm_id": other})
    line = refusal(elsewhere)
    assert "run of swarm theirs" in line and other[:12] in line
    check_run(elsewhere.model_copy(update={"new_run": True}), origins, ME)


@pytest.mark.parametrize("case", ["first row edited", "prompt edited", "held out"])
def test_files_that_changed_in_a_swarm_with_peers_are_named_as_such(
    tmp_path: Path, case: str
) -> None:
    settings = Start().settings(tmp_path)
    start(settings)
    address = f"/ip4/127.0.0.1/tcp/1/p2p/{ME}"
    run = settings.data_dir
    # As a bootstrap's answer leaves it: the swarm is stated by peers.
    notes = json.loads((run / TASK_FILES_FILE).read_text()) | {"founded": False}
    (run / TASK_FILES_FILE).write_text(json.dumps(notes))
    moved = Start(folder="moved").settings(tmp_path)
    origins = dict.fromkeys(Settings.model_fields, "default")
    check_run(moved.model_copy(update={"bootstrap": (address,)}), origins, ME)
    changed = CASES[case][0].settings(tmp_path).model_copy(update={"bootstrap": (address,)})
    line = refusal(changed)
    assert "of 'sums'" in line and "changed since the last run" in line
    check_run(changed.model_copy(update={"new_run": True}), origins, ME)
