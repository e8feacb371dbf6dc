"""What a trainer would refuse is refused before its node has listened or dialled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal_settings import early
from shoal_settings.early import early_refusal
from shoal_settings.schema import Settings
from tests.settings import settings_cases as case

pytestmark = pytest.mark.usefixtures("empty_folder")
DECLARED = "cuda: Optional[str] = {cuda}\nhip: Optional[str] = {hip}\n"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "/no/such"}, "no such folder"),
        ({"model": "./there"}, "this folder has no config.json"),
        ({"model": "there"}, "this folder has no config.json"),
        ({"model": "quantised"}, "take the model as it was before, with --lora-rank 16"),
        ({"model": "adapter"}, "it holds adapters, not a model"),
        ({"model": "gone.gguf"}, "no such file"),
        ({"model": ""}, "--model is empty"),
        ({"model": "a model"}, "no such folder"),
        ({"dtype": "float16"}, "--dtype float16 cannot be trained: use bfloat16"),
        ({"dtype": "float16", "resume": True}, "--dtype float16 cannot be trained"),
        ({"device": "abacus"}, "must be auto, cpu, cuda"),
        ({"model": "tinny"}, "there is no model 'tinny' (did you mean 'tiny'?)"),
        ({"model": "smolm2"}, "(did you mean 'smollm2'?)"),
        ({"log": "nowhere"}, "--log nowhere: it is not installed: pip install nowhere"),
    ],
)
def test_what_needs_no_model_to_be_refused(settings: dict[str, Any], message: str) -> None:
    Path("there").mkdir()
    Path("quantised").mkdir()
    Path("quantised/config.json").write_text('{"quantization_config": {"bits": 4}}')
    Path("adapter").mkdir()
    Path("adapter/adapter_config.json").write_text("{}")
    refused = early_refusal(Settings.model_construct(**{**Settings().model_dump(), **settings}))
    assert refused is not None
    assert message in refused


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"model": "tiny-sparse"},
        {"model": "smollm2"},
        {"model": "gpt2"},
        {"model": "some/name"},
        {"model": "made"},
        {"model": "/gone", "resume": True},
        {"model": "/gone", "role": "generate", "generator": "openai"},
        {"device": "cpu"},
    ],
)
def test_what_may_well_work_is_left_to_the_trainer(settings: dict[str, Any]) -> None:
    Path("made").mkdir()
    Path("made/config.json").touch()
    Path(".shoal/node/checkpoints").mkdir(parents=True)
    if not settings.get("resume"):
        settings["resume"] = False
    assert early_refusal(Settings(**settings)) is None


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 1234567890\n"
WHOLE = {"config.json": "{}", "model.safetensors": "weights", "tokenizer.json": "{}"}


@pytest.mark.parametrize(
    "files",
    [
        {**WHOLE, "model.safetensors": POINTER},
        {"config.json": "{}", "model-00002-of-00002.safetensors": POINTER},
        {"config.json": "{}", "pytorch_model.bin": POINTER},
        {**WHOLE, "tokenizer.json": POINTER},
        {**WHOLE, "config.json": POINTER},
        {**WHOLE, "chat_template.jinja": POINTER},
        {"config.json": "{}", "model.safetensors": "weights", "tokenizer.model": POINTER},
        {"adapter_config.json": "{}", "adapter_model.safetensors": POINTER},
    ],
)
def test_a_git_lfs_pointer_is_named_with_its_remedy(files: dict[str, str]) -> None:
    Path("m").mkdir()
    for name, text in files.items():
        (Path("m") / name).write_text(text)
    pointer = next(name for name, text in files.items() if text == POINTER)
    refused = early.refusal_of_model("m")
    assert refused is not None and "\n" not in refused
    assert f"{pointer} is a Git LFS pointer" in refused
    assert refused.endswith(f"run `git lfs pull` in {Path('m').absolute()}")


def test_a_gguf_file_may_be_a_pointer() -> None:
    Path("m.gguf").write_text(POINTER)
    assert "Git LFS pointer and holds no weights" in (early.refusal_of_model("m.gguf") or "")


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "consolidated.safetensors", "tokenizer.model", "picture.png"]
)
def test_a_pointer_that_no_loader_reads_is_no_trouble(name: str) -> None:
    Path("m").mkdir()
    for file, text in {**WHOLE, name: POINTER}.items():
        (Path("m") / file).write_text(text)
    assert early.refusal_of_model("m") is None


@pytest.mark.parametrize(
    ("cuda", "hip", "refused"),
    [("None", "None", True), ("'12.9'", "None", False), ("None", "'6.4'", False)],
)
def test_a_torch_without_cuda_is_known_by_its_own_words(
    cuda: str, hip: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("torch").mkdir()
    Path("torch/__init__.py").touch()
    Path("torch/version.py").write_text(DECLARED.format(cuda=cuda, hip=hip))
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert (early_refusal(Settings(device="cuda:1")) is not None) is refused
    assert early.early_refusal(Settings(device="cpu")) is None


@pytest.mark.parametrize("device", ["gpu", "cudaa", "cuda:", "cuda:x", "auto:1", "ipu"])
def test_a_device_is_one_of_four(device: str) -> None:
    line = case.error_of("node", ["--device", device])
    assert line.endswith("must be auto, cpu, cuda (or one card: cuda:0), mps or xpu")
    assert case.loaded("node", ["--device", "cuda:12"]).settings.device == "cuda:12"


@pytest.mark.parametrize(
    "url",
    ["nonsense", "ftp://a/v1", "http://", "http:///v1", "http://[::1", "http://a:b", "http://a b"],
)
def test_a_servers_address_has_a_host(url: str) -> None:
    assert "must begin with http://" in case.error_of("node", ["--base-url", url])


@pytest.mark.slow
def test_a_refused_node_has_made_no_name_for_itself() -> None:
    """It has contacted no peer; its only output is one line."""
    done = subprocess.run(
        [sys.executable, "-m", "shoal", "node", "--model", "/no/such", "--data-dir", "d"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "shoal node: cannot load model '/no/such': no such folder\n"
