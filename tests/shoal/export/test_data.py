"""`shoal export data`: real signed batches become a data set that `datasets` loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal.export.sinks import Card
from shoal_p2p.store.archive import ARCHIVE_FILE, Archived, ArchiveFile
from shoal_tasks.families import TRAIN_SEED_MIN
from shoal_wire.digests import batch_id
from shoal_wire.manifest import Manifest
from shoal_wire.types import RolloutGroup
from tests.support import factories as make
from tests.support.schemas import check


def archive_of(folder: Path, manifest: Manifest, *batches: tuple[bool, bytes]) -> None:
    """Make a node's folder that holds these envelopes, each with whether it is the node's own."""
    folder.mkdir()
    file = ArchiveFile(folder / ARCHIVE_FILE, max_bytes=1 << 20)
    file.add_manifest(manifest.digest, manifest.raw)
    file.add(
        [
            Archived(batch_id=batch_id(raw), own=own, received_ms=1, envelope=raw)
            for own, raw in batches
        ]
    )
    file.close()


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]


@pytest.fixture
def node_dir(tmp_path: Path) -> Path:
    """The data directory of a node that published one batch and received two, one damaged."""
    folder, manifest = tmp_path / "node", make.swarm()
    me, other = make.Author(manifest), make.Author(manifest)
    envelopes = [
        (True, me.envelope(me.batch([_group(0), _group(1, right=False)]))),
        (False, other.envelope(other.batch([_group(2)]))),
    ]
    damaged = bytearray(other.envelope(other.batch([_group(3)])))
    damaged[-1] ^= 1
    archive_of(folder, manifest, *envelopes, (False, bytes(damaged)))
    return folder


def test_rows_hold_question_rewards_and_provenance(
    node_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["export", "data", "--data-dir", str(node_dir), "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    check("export data", report)
    assert (report["groups"], report["publishers"], report["damaged_batches"]) == (3, 2, 1)
    rows = rows_of(out)
    assert [row["is_local"] for row in rows] == [True, True, False]
    for row in rows:
        assert row["question"] == make.real_question(row["seed"] - TRAIN_SEED_MIN)
        assert len(row["rewards"]) == len(row["completions"])
    assert rows[0]["rewards"][0] == 1.0
    assert set(rows[1]["rewards"]) == {0.0}

    import datasets

    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))["train"]
    assert loaded.to_list() == rows


def test_own_rollouts_alone_and_without_rewards(node_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ["--own", "--no-verify", "--format", "jsonl"]
    assert main(["export", "data", "--data-dir", str(node_dir), "--out", str(out), *flags]) == 0
    rows = rows_of(out)
    assert len(rows) == 2
    assert all(row["rewards"] is None and row["question"] is None for row in rows)
    assert not (out / "rollouts.parquet").exists()


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--data-dir", "nowhere"], 3, "no archive of rollouts in nowhere"),
        (["--hub", "noslash"], 2, "is not OWNER/NAME"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    node_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    code: int,
    message: str,
) -> None:
    start = ["--data-dir", str(node_dir), "--out", str(tmp_path / "out")]
    assert main(["export", "data", *start, *flags]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_path_that_is_wrong_is_the_one_that_is_named(
    node_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that is too long stands for a folder that may not be read: root reads all."""
    wrong = str(tmp_path / (300 * "x"))
    out = str(tmp_path / "out")
    assert main(["export", "data", "--data-dir", wrong, "--out", out]) == 2
    assert capsys.readouterr().err.startswith(
        f"shoal export data: {wrong}/{ARCHIVE_FILE} cannot be read"
    )
    assert main(["export", "data", "--data-dir", str(node_dir), "--out", wrong]) == 1
    assert capsys.readouterr().err.startswith(f"shoal export data: {wrong}: ")


def test_a_folder_with_files_in_it_is_left_alone(node_dir: Path) -> None:
    assert main(["export", "data", "--data-dir", str(node_dir), "--out", str(node_dir)]) == 2
    assert sorted(path.name for path in node_dir.iterdir()) == [ARCHIVE_FILE]


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("gcd_easy", "gcd_easy"),
        ("a|b", r"a\|b"),
        ("\x1b[2J", r"\\x1b\[2J"),
        ("a\nb ", r"a\\nb\\x20"),
        ("_a_ **b** <i>", r"\_a\_ \*\*b\*\* \<i\>"),
        ("http://evil.example", r"http\:\/\/evil\.example"),
    ],
)
def test_nothing_acts_on_the_card(tmp_path: Path, name: str, cell: str) -> None:
    card = Card()
    card.count([{"completions": ["a"], "publisher": "b", "family": name, "rewards": None}])
    card.write(tmp_path, ["jsonl"])
    assert (tmp_path / "README.md").read_text().splitlines()[-1] == f"| {cell} | 1 |"


def _group(number: int, *, right: bool = True) -> RolloutGroup:
    item = make.real_worker().items([make.coordinates_at(number)])[0]
    first = str(item.answer) if right else "no idea"
    return make.group(
        number, (first, "other"), of=make.task(number, question=make.real_question(number))
    )


TRAINERS = {
    "sft": ("SFTConfig", "SFTTrainer"),
    "dpo": ("DPOConfig", "DPOTrainer"),
    "kto": ("KTOConfig", "KTOTrainer"),
}


@pytest.mark.parametrize("purpose", TRAINERS)
def test_rows_for_a_trainer_hold_the_prompt_and_what_it_learns(
    node_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], purpose: str
) -> None:
    start = ["export", "data", "--data-dir", str(node_dir), "--json", "--out"]
    assert main([*start, str(tmp_path / "groups")]) == 0
    assert main([*start, str(tmp_path / "rows"), "--for", purpose]) == 0
    _, report = map(json.loads, capsys.readouterr().out.splitlines())
    groups, rows = rows_of(tmp_path / "groups"), rows_of(tmp_path / "rows")
    assert report["rows"] == len(rows) > 0 and report["groups"] == len(groups)
    prompts = {group["group_id"]: group["prompt"] for group in groups}
    rewards = {
        (group["group_id"], text): reward
        for group in groups
        for text, reward in zip(group["completions"], group["rewards"], strict=True)
    }
    for row in rows:
        assert row["prompt"] == prompts[row["group_id"]] and row["prompt"][-1]["role"] == "user"

        def reward_of(column: str, row: dict[str, Any] = row) -> float:
            (message,) = row[column]
            assert message["role"] == "assistant"
            return rewards[row["group_id"], message["content"]]

        if purpose == "sft":
            assert reward_of("completion") > 0.5
        elif purpose == "dpo":
            assert reward_of("chosen") > reward_of("rejected")
        else:
            assert (reward_of("completion") > 0.5) == row["label"]


@pytest.mark.slow
@pytest.mark.parametrize("purpose", TRAINERS)
def test_trl_trains_on_an_export_as_it_is(node_dir: Path, tmp_path: Path, purpose: str) -> None:
    """With a chat template, which the embedded model lacks."""
    import datasets
    import trl

    from shoal_policy.model.loading import load_policy

    out = str(tmp_path / "rows")
    assert (
        main(["export", "data", "--data-dir", str(node_dir), "--out", out, "--for", purpose]) == 0
    )
    rows = datasets.load_dataset(out, cache_dir=str(tmp_path / "cache"))["train"]
    policy = load_policy("tiny", device="cpu")
    policy.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    config, trainer = (getattr(trl, name) for name in TRAINERS[purpose])
    arguments = config(
        output_dir=str(tmp_path / "model"),
        max_steps=2,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    made = trainer(
        model=policy.model,
        args=arguments,
        train_dataset=rows,
        processing_class=policy.tokenizer,
    )
    assert made.train().global_step == 2
