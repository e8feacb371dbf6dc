"""`shoal serve` as other programs use it: a real process, over HTTP."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal import policy_flags
from shoal.__main__ import main
from shoal.serve import MAX_BODY_BYTES
from shoal_policy.tiny import embedded_folder
from shoal_settings.exits import EXIT_NO_NODE, EXIT_OK, EXIT_USAGE
from tests.support.schemas import check

SERVE = [sys.executable, "-m", "shoal", "serve", "--port", "0", "--json"]
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "2 + 3"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Serve the embedded model; yield the base URL, and hold the process to a quiet end."""
    command = [*SERVE, "--model", "tiny"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        ready = json.loads(process.stdout.readline())
        check("serve", ready)
        assert ready["model"] == "tiny"
        yield ready["url"]
        process.terminate()
        assert process.wait(20) == EXIT_OK
        assert process.stderr.read() == b""


def post(url: str, body: Any, **headers: str) -> httpx.Response:
    return httpx.post(f"{url}/chat/completions", json=body, headers=headers, timeout=60)


def test_it_answers_a_chat(url: str) -> None:
    assert httpx.get(f"{url}/models").json()["data"][0]["id"] == "tiny"
    reply = post(url, {**ASKED, "n": 3}).json()
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert reply["usage"]["total_tokens"] > reply["usage"]["prompt_tokens"]


def events(url: str, body: Any) -> list[Any]:
    """Return the events of a stream, without the last one, which is `[DONE]`."""
    with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=60) as reply:
        assert reply.status_code == 200, reply.read()
        assert reply.headers["content-type"] == "text/event-stream"
        lines = [line for line in reply.iter_lines() if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_stream_is_server_sent_events_and_the_connection_stays(url: str) -> None:
    body = {**ASKED, "seed": 3, "stream_options": {"include_usage": True}, "stream": True}
    whole = post(url, {**ASKED, "seed": 3}).json()
    first, *others, last = events(url, body)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(one["choices"][0]["delta"].get("content", "") for one in others)
    assert text == whole["choices"][0]["message"]["content"]
    assert last["usage"] == whole["usage"]
    with httpx.Client() as client:
        for _ in range(2):
            reply = client.post(f"{url}/chat/completions", json={**ASKED, "stream": True})
            assert reply.text.endswith("data: [DONE]\n\n")


def test_a_model_is_found_by_its_name_and_no_other(url: str) -> None:
    assert httpx.get(f"{url}/models/tiny").json()["id"] == "tiny"
    refused = httpx.get(f"{url}/models/org%2Fother")
    assert refused.status_code == 404
    assert refused.json()["error"]["message"].startswith("there is no model 'org/other'")
    other = post(url, {**ASKED, "model": "gpt-4"})
    assert other.status_code == 404
    assert other.json()["error"]["code"] == "model_not_found"


def test_the_openai_client_streams(url: str) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=url, api_key="none")
    whole = client.chat.completions.create(**ASKED, seed=3)
    stream = client.chat.completions.create(**ASKED, seed=3, stream=True)
    text = "".join(part.choices[0].delta.content or "" for part in stream)
    assert text == whole.choices[0].message.content
    with pytest.raises(openai.BadRequestError, match="unknown parameter 'guided_json'"):
        client.chat.completions.create(**ASKED, extra_body={"guided_json": {}})


def test_a_fault_of_the_client_is_an_error_that_it_can_show(url: str) -> None:
    for body, message in (({}, "messages must be"), ([], "JSON object"), (None, "JSON object")):
        refused = post(url, body)
        assert refused.status_code == 400
        assert message in refused.json()["error"]["message"]
    assert httpx.post(f"{url}/embeddings", json={}).status_code == 404
    assert httpx.post(f"{url}/completions", content=b" " * (MAX_BODY_BYTES + 1)).status_code == 413
    assert post(url, ASKED).status_code == 200


def test_a_website_that_its_owner_visits_cannot_ask(url: str) -> None:
    assert post(url, ASKED, Origin="https://elsewhere.example").status_code == 403
    assert post(url, ASKED, Host="elsewhere.example:8000").status_code == 403


def test_what_cannot_be_served_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, code, message in (
        (["--data-dir", str(tmp_path)], EXIT_NO_NODE, "no checkpoint in"),
        (["--model", "tiny", "--data-dir", str(tmp_path)], EXIT_USAGE, "give one of them"),
        (["--checkpoint", str(tmp_path)], EXIT_USAGE, str(tmp_path)),
        (["--model", "tiny", "--device", "cuda:77"], EXIT_USAGE, "cuda:77"),
    ):
        assert main(["serve", "--port", "0", *flags]) == code
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert message in line, line


LM_EVAL = os.environ.get("LM_EVAL") or shutil.which("lm_eval")
TASK = """\
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: ["5", "6"]
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc}}]
"""


@pytest.mark.slow
@pytest.mark.skipif(LM_EVAL is None, reason="no lm-eval: name its lm_eval in LM_EVAL")
def test_lm_eval_evaluates_what_is_served(url: str, tmp_path: Path) -> None:
    """A multiple choice, which lm-eval scores by the log-probabilities of an echoed prompt."""
    assert LM_EVAL is not None
    rows, tokenizer = tmp_path / "rows.jsonl", str(embedded_folder("tiny"))
    rows.write_text('{"question": "2 + 3", "answer": 0}\n{"question": "3 + 3", "answer": 1}\n')
    (tmp_path / "sums.yaml").write_text(TASK.format(rows=rows))
    model = f"base_url={url}/completions,model=tiny,tokenizer={tokenizer},tokenized_requests=True"
    command = [LM_EVAL, "--model", "local-completions", "--model_args", model]
    command += ["--tasks", "sums", "--include_path", str(tmp_path), "--output_path", str(tmp_path)]
    environment = {name: one for name, one in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = tmp_path.rglob("results_*.json")
    assert json.loads(found.read_text())["results"]["sums"]["acc,none"] in (0.0, 0.5, 1.0)


def test_a_checkpoint_that_a_node_replaces_meanwhile_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node that trains keeps two checkpoints; loading one takes seconds."""
    node, whole = tmp_path / "node", tmp_path / "whole"
    command = ["trainer", "--alone", "--model", "tiny", "--rounds", "1", "--eval-every", "0"]
    assert main([*command, "--data-dir", str(node)]) == EXIT_OK
    (checkpoint,) = (node / "checkpoints").iterdir()
    shutil.move(checkpoint, whole)
    found = [checkpoint, whole]
    monkeypatch.setattr(
        policy_flags, "newest_checkpoint_in", lambda *_: found.pop(0) if found else None
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO("2 + 3\n"))
    capsys.readouterr()
    assert main(["chat", "--data-dir", str(node), "--json"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["answer"]
    assert found == []
