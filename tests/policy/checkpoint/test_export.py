"""`shoal trainer --export`: a folder that other programs load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from policy.__main__ import main
from policy.checkpoint.export import export_model
from policy.checkpoint.saving import CheckpointError
from policy.trainer import Trainer
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
    data_dir.mkdir()
    settings = case.settings(data_dir, model, lora_rank=rank, learning_rate=0.05)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        export_model(settings, tmp_path / "out", print)
    trainer = Trainer(settings, case.surroundings(), seed=1)
    trainer.run()
    out = tmp_path / "out"
    command = [f"--data-dir={data_dir}", f"--model={model}", f"--export={out}"]
    capsys.readouterr()
    assert main(command) == 0
    reading, writing = capsys.readouterr().err.splitlines()
    assert reading.startswith("reading ")
    assert writing.endswith(f" MB to {out}")
    loaded = AutoModelForCausalLM.from_pretrained(out).eval()
    start = AutoModelForCausalLM.from_pretrained(model).eval()
    with torch.inference_mode():
        trained = trainer.course.policy.model(input_ids=IDS).logits
        assert torch.allclose(loaded(input_ids=IDS).logits, trained, atol=1e-5)
        assert not torch.allclose(start(input_ids=IDS).logits, trained, atol=1e-3)
    assert len(AutoTokenizer.from_pretrained(out)) == len(trainer.course.policy.tokenizer)
    assert main(command) == 1, "it would overwrite"
