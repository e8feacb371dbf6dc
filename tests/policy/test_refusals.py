"""Startup errors that a restart would not repair: one line, exit code 2."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from jinja2 import TemplateError

from shoal_base import extras
from shoal_policy import trainer as trainer_module
from shoal_policy.__main__ import main
from shoal_policy.checkpoint.saved import CheckpointError
from shoal_policy.distributed import RankError
from shoal_policy.model import loading, memory
from shoal_policy.model.from_settings import refuse_wrong_model
from shoal_policy.model.loading import ModelError
from shoal_policy.refusals import startup_error
from shoal_settings.schema import Settings
from shoal_tasks.errors import WorkerUnavailable
from tests.policy import tiny_models
from tests.policy import training_cases as case

SETTINGS = Settings(model="big", device="cpu")


pytestmark = pytest.mark.usefixtures("as_it_was", "shared_worker")


def flags(model: str, *more: str) -> list[str]:
    small = (
        "--local=2 --external=0 --completions=2 --max-new-tokens=4 --rounds=1 --alone --log=none"
    )
    return [*small.split(), "--device=cpu", f"--model={model}", "--data-dir=d", *more]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the trainer; return its one line."""
    capsys.readouterr()
    assert main(list(arguments)) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("shoal trainer: ")
    return line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, *flags(model, "--device=cuda"))
    assert "CUDA" in line or "GPU" in line
    assert "--device cpu" in line
    assert "--device mps" in refused(capsys, *flags(model, "--device=mps"))
    assert "--device meta" in refused(capsys, *flags(model, "--device=meta"))


def test_a_device_that_is_not_there_any_more(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags(model)) == 0
    assert "--device meta" in refused(capsys, *flags(model, "--device=meta", "--rounds=2"))


def test_another_models_checkpoint(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags(model)) == 0
    assert "--no-resume" in refused(capsys, *flags("tiny"))


def test_a_checkpoint_of_another_format(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags(model)) == 0
    [folder] = Path("d/checkpoints").iterdir()
    for name, change in (("state.json", {"format_version": 99}),):
        document = json.loads((folder / name).read_text()) | change
        (folder / name).write_text(json.dumps(document))
    manifest = json.loads((folder / "manifest.json").read_text())
    state = folder / "state.json"
    manifest["files"]["state.json"] = {
        "sha256": hashlib.sha256(state.read_bytes()).hexdigest(),
        "size": state.stat().st_size,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "format 99" in refused(capsys, *flags(model, "--rounds=2"))


@pytest.mark.parametrize("missing", extras.TRAINER)
def test_an_installation_without_a_trainers_libraries(
    model: str, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda module: module != missing)
    line = refused(capsys, *flags(model))
    assert missing in line
    assert "pip install 'shoal[train]'" in line


def test_a_model_that_memory_does_not_hold(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "free_bytes", lambda _device: 100_000)
    line = refused(capsys, *flags(model))
    assert "needs at least 0.0 GiB, but only 0.0 GiB are free" in line
    assert main(flags("tiny")) == 0, "an embedded model is not asked"


def test_weights_dealt_out_need_their_part_on_each_device_and_all_of_them_on_the_host(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = case.settings(tmp_path, model)
    total = sum(one.numel() for one in loading.load_policy(model, device="cpu").model.parameters())
    for parts, here, free, refused_for in (
        (1, 1, 16 * total - 1, "GiB, but only"),
        (4, 1, 4 * total, None),
        (4, 1, 4 * total - 1, "GiB on each of 4 devices"),
        (4, 4, 16 * total - 1, "GiB on this machine, for 4 processes"),
    ):
        monkeypatch.setattr(loading, "free_bytes", lambda _device, free=free: free)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(here))
        if refused_for is None:
            refuse_wrong_model(settings, parts=parts)
            continue
        with pytest.raises(loading.ModelError, match=refused_for):
            refuse_wrong_model(settings, parts=parts)


def test_what_training_needs_is_weights_gradients_and_two_moments() -> None:
    assert memory.training_bytes(1000, bytes_each=4) == 16_000
    assert memory.training_bytes(1000, bytes_each=4, num_copies=1) == 20_000


def test_a_containers_limit_is_what_is_free(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._cgroup_free_bytes(tmp_path) == 1 << 62
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    assert memory._cgroup_free_bytes(tmp_path) == 450


def folder_of(path: Path, *, positions: int = 256, template: str | None = None) -> str:
    """A model's folder, with a chat template or the embedded model's form."""
    model = tiny_models.model("qwen2", positions=positions)
    return tiny_models.save(path, model, tiny_models.tokenizer(template=template))


def test_a_model_too_short_for_every_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, *flags(folder_of(tmp_path / "short", positions=8)))
    assert "holds 8 tokens, and every question of this swarm has more" in line


def test_a_chat_template_that_takes_no_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = "{{ raise_exception('only pictures') }}"
    line = refused(capsys, *flags(folder_of(tmp_path / "chat", template=template)))
    assert "chat template rejects a question: only pictures" in line


@pytest.mark.parametrize("template", ["hello", "{{ messages[0].role }}"])
def test_a_chat_template_that_leaves_the_question_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], template: str
) -> None:
    """Its model would be trained on answers to nothing."""
    line = refused(capsys, *flags(folder_of(tmp_path / "chat", template=template)))
    assert "chat template or tokenizer drops the question" in line


def test_questions_that_are_too_long_are_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Of the six families some fit: the others are named once, and rounds go on."""
    short = folder_of(tmp_path / "short", positions=64)
    assert main(flags(short, "--rounds=6", "--json")) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    message = [record.getMessage() for record in caplog.records if "are skipped" in record.msg]
    assert message
    assert len(message) == len(set(message))


@pytest.mark.parametrize("error", [TypeError("no such layer"), RuntimeError("a kernel is missing")])
def test_whatever_else_the_start_meets(
    model: str,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(trainer_module, "begin_or_resume", fail)
    line = refused(capsys, *flags(model))
    assert str(error) in line
    assert type(error).__name__ in line


def test_a_fault_after_the_first_answers_is_a_crash(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From there on peers' groups are met: a node that they could end would be theirs."""

    def fail(*_: object, **__: object) -> None:
        raise TypeError("odd group")

    monkeypatch.setattr("shoal_policy.round.external.ExternalSampler.sample", fail)
    with pytest.raises(TypeError, match="odd group"):
        main(flags(model))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModelError("cannot"), "cannot"),
        (CheckpointError("of another model"), "of another model"),
        (MemoryError(), "not enough memory for model"),
        (
            RuntimeError("DefaultCPUAllocator: not enough memory: 1 byte"),
            "not enough memory for model",
        ),
        (ImportError("no such symbol"), "no such symbol"),
        (TemplateError("odd"), "odd"),
        (ValueError("first\nsecond"), "first"),
    ],
)
def test_it_is_one_line(error: Exception, message: str) -> None:
    line = startup_error(error, SETTINGS)
    assert line is not None
    assert message in line
    assert "\n" not in line


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a driver's bad moment")])
def test_what_has_worked_before_may_work_again(tmp_path: Path, error: Exception) -> None:
    (tmp_path / "checkpoints").mkdir()
    settings = Settings(model="big", device="cpu", data_dir=tmp_path)
    assert startup_error(error, settings) is None
    assert startup_error(CheckpointError("of another model"), settings) is not None


@pytest.mark.parametrize(
    "error",
    [OSError(5, "Input/output error"), WorkerUnavailable("slow"), RankError("another has ended")],
)
def test_what_may_pass_is_no_refusal(error: Exception) -> None:
    assert startup_error(error, SETTINGS) is None
    try:
        raise CheckpointError("cannot read round-000003") from error
    except CheckpointError as wrapped:
        assert startup_error(wrapped, SETTINGS) is None
