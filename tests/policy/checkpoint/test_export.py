"""`shoal export model`: a folder that other programs load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from shoal.__main__ import main
from shoal_policy.checkpoint.export import export_model
from shoal_policy.checkpoint.saved import latest_checkpoint
from tests.policy import training_cases as case

IDS = torch.tensor([[1, 7, 9, 20, 5]])


@pytest.mark.parametrize("rank", [0, 2])
def test_the_folder_holds_what_was_trained(
    rank: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if rank:
        pytest.importorskip("peft")
    model = case.model_folder(tmp_path)
    data_dir = tmp_path / "d"
    trainer = case.trainer(data_dir, model, lora_rank=rank, learning_rate=0.05)
    command = ["export", "model", f"--data-dir={data_dir}", f"--out={tmp_path / 'out'}"]
    assert main(command) == 3, "it has no checkpoint"
    trainer.run()
    out = tmp_path / "out"
    capsys.readouterr()
    assert main(command) == 0
    reading, writing = capsys.readouterr().err.splitlines()
    assert reading.startswith("reading ")
    assert writing.endswith(f" MB to {out}")
    loaded = AutoModelForCausalLM.from_pretrained(out).eval()
    start = AutoModelForCausalLM.from_pretrained(model).eval()
    with torch.inference_mode():
        trained = trainer.training_run.policy.model(input_ids=IDS).logits
        assert torch.allclose(loaded(input_ids=IDS).logits, trained, atol=1e-5)
        assert not torch.allclose(start(input_ids=IDS).logits, trained, atol=1e-3)
    assert len(AutoTokenizer.from_pretrained(out)) == len(trainer.training_run.policy.tokenizer)
    assert main(command) == 2, "it would overwrite"


def test_adapters_are_added_in_float32_whatever_the_model_is_in(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    model, data_dir = case.model_folder(tmp_path), tmp_path / "d"
    trainer = case.trainer(data_dir, model, lora_rank=2, dtype="bfloat16")
    trainer.run()
    found = latest_checkpoint(data_dir).path
    assert found is not None
    settings = case.settings(data_dir, model, lora_rank=2, dtype="bfloat16")
    export_model(settings, found, tmp_path / "out", lambda _step: None)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert loaded.dtype == torch.float32
    start = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).float().eval()
    with torch.inference_mode():
        trained = trainer.training_run.policy.model.float()(input_ids=IDS).logits
        off = (loaded(input_ids=IDS).logits - trained).abs().max()
        moved = (start(input_ids=IDS).logits - trained).abs().max()
    assert off < 1e-4 < moved / 10
