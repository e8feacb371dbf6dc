"""A real server of OpenAI's protocol that is already running, such as llama.cpp's.

`OPENAI_SERVER` is its address with `/v1`, `OPENAI_MODEL` its name of the model. It passed with
llama.cpp's own server (xllamacpp 2026.10, SmolLM2-135M-Instruct in 4 bits).
"""

from __future__ import annotations

import os

import pytest

from tests.policy.generation.vllm_cases import served_flags, trained

URL = os.environ.get("OPENAI_SERVER")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(URL is None, reason="no server: name its address in OPENAI_SERVER")
@pytest.mark.usefixtures("as_it_was")
def test_a_trainer_learns_from_its_answers() -> None:
    name = os.environ.get("OPENAI_MODEL", "default")
    more = ("--model=tiny", f"--remote-model={name}", "--eval-every=0", "--alone")
    trained(served_flags("openai", str(URL), *more))
