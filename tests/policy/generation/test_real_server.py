"""A real server of OpenAI's protocol that somebody has started, such as llama.cpp's.

`OPENAI_SERVER` is its address with `/v1`, `OPENAI_MODEL` its name of the model. It passed with
llama.cpp's own server (xllamacpp 2026.10, SmolLM2-135M-Instruct in 4 bits).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shoal_policy import __main__ as command

URL = os.environ.get("OPENAI_SERVER")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(URL is None, reason="no server: name its address in OPENAI_SERVER")
def test_a_trainer_learns_from_its_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--generator=openai", f"--base-url={URL}", "--model=tiny", "--device=cpu"]
    flags += [f"--remote-model={os.environ.get('OPENAI_MODEL', 'default')}", "--data-dir=d"]
    flags += ["--local=2", "--completions=3", "--external=0", "--max-new-tokens=6", "--rounds=2"]
    assert command.main([*flags, "--seed=3", "--eval-every=0", "--alone", "--log=none"]) == 0
    lines = Path("d/metrics.jsonl").read_text().splitlines()
    rounds = [row for row in map(json.loads, lines) if row["event"] == "round"]
    assert [row["tokens_generated"] > 0 for row in rounds] == [True, True]
