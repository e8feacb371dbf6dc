"""`shoal tasks`, as a user meets it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal_policy.model.loading import PromptFormat
from shoal_policy.model.prompting import encode_prompt
from shoal_tasks.families import PRESETS, TRAIN_SEED_MIN, coordinates
from shoal_tasks.generators import ALLOWED_GENERATORS
from shoal_tasks.prompts import TAGGED_INSTRUCTION
from shoal_tasks.spec import AnswerFormat, FamilySpec
from shoal_tasks.worker.sync import SyncTaskWorker
from tests.policy import tiny_models
from tests.policy.model.test_prompting import TEMPLATE
from tests.tasks.families import ALL_FAMILIES


@pytest.fixture(scope="module")
def worker() -> Iterator[SyncTaskWorker]:
    with SyncTaskWorker(ALL_FAMILIES) as running:
        yield running


FLOOR = {
    "floor": {"answer": "1", "echo": False, "reward": 0.5, "questions": 9},
    "evaluated": True,
}


class Verbatim:
    """A tokenizer with a token for each character, so that ids tell the exact text."""

    def __call__(self, text: str, **_options: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) for character in text]}

    def apply_chat_template(self, messages: list[dict[str, str]], **_options: Any) -> list[int]:
        return [ord(character) for character in json.dumps(messages)]


def encoded(question: str, prompt_format: PromptFormat, *, tagged: bool) -> str:
    """The prompt of the trainer's model, as text; a chat as JSON."""
    policy = replace(tiny_models.policy(), tokenizer=Verbatim(), prompt_format=prompt_format)
    return "".join(map(chr, encode_prompt(policy, question, tagged=tagged)))


def test_the_list_has_every_family_of_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    listed = {(row["preset"], row["name"], row["config_digest"]) for row in view["families"]}
    assert listed == {
        (preset, spec.name, spec.digest.hex())
        for preset, specs in PRESETS.items()
        for spec in specs
    }
    assert view["generators"] == sorted(ALLOWED_GENERATORS)
    assert main(["tasks"]) == 0
    text = capsys.readouterr().out
    assert all(row["name"] in text and row["scorer"] in text for row in view["families"])


def test_a_family_shows_a_sample_and_what_completions_earn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tasks", "gcd_easy", "--seed", "1048600", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    sample = view["sample"]
    assert (view["preset"], view["generator"], view["instruction"]) == ("easy", "gcd", None)
    assert sample["seed"] == 1048600
    right, cut, tagged, wrong = sample["scored"]
    assert right == {"completion": sample["answer"], "finish_reason": "stop", "reward": 1.0}
    assert [row["reward"] for row in (cut, tagged, wrong)] == [0.0, 0.0, 0.0]
    assert cut["finish_reason"] == "length"


def test_a_generator_is_shown_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "rotate_matrix"]) == 0
    text = capsys.readouterr().out
    assert "rotate" in text
    assert "<answer>" in text
    assert " 1.00  " in text
    assert " 0.00  " in text


@pytest.mark.parametrize("spec", ALL_FAMILIES, ids=lambda spec: spec.name)
def test_a_family_is_shown_with_the_prompt_of_the_trainer(
    spec: FamilySpec,
    worker: SyncTaskWorker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def shared(_specs: object) -> AbstractContextManager[SyncTaskWorker]:
        return nullcontext(worker)

    monkeypatch.setattr("shoal.tasks.command.SyncTaskWorker", shared)
    monkeypatch.setattr("shoal.tasks.command._measure_floor", lambda _worker, _spec: FLOOR)
    task = coordinates(spec, TRAIN_SEED_MIN + 5)
    [question] = worker.questions([task])
    tagged = spec.answer_format is AnswerFormat.TAGGED
    at = ["tasks", spec.name, "--seed", str(task.seed)]
    assert main([*at, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    sample = view["sample"]
    chat = encoded(question, PromptFormat.CHAT, tagged=tagged)
    assert sample["messages"] == json.loads(chat)
    assert sample["prompt"] == encoded(question, PromptFormat.PLAIN, tagged=tagged)
    assert view["instruction"] == (TAGGED_INSTRUCTION if tagged else None)
    assert main(at) == 0
    text = capsys.readouterr().out
    assert (TAGGED_INSTRUCTION in text) == tagged


@pytest.mark.slow
def test_a_family_that_copying_solves_is_reported_with_the_copy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tasks", "propositional_logic_small"]) == 0
    assert re.search(r"floor +1\.00 for the premises, joined", capsys.readouterr().out)
    assert main(["tasks", "propositional_logic_small", "--json"]) == 0
    floor = json.loads(capsys.readouterr().out)["floor"]
    assert (floor["answer"], floor["echo"], floor["reward"]) == ("the premises, joined", True, 1.0)


def test_a_familys_floor_is_shown_and_whether_it_is_evaluated_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tasks", "base_conversion_small"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"floor +0\.\d\d for \"1\d*\" to everything", text), text
    assert "no: it has too few different questions" in text
    assert main(["tasks", "count_bits_easy", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["evaluated"] is True
    assert view["floor"]["answer"] in ("3", "4")
    assert 0.15 < view["floor"]["reward"] < 0.45


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["gcd_eazy"], "did you mean 'gcd_easy'"),
        (["%"], "`shoal tasks` lists them"),
        (["gcd_easy", "--shots", "2"], "give --model too"),
        (["gcd_easy", "--prompt", "plain"], "give --model too"),
    ],
)
def test_an_unknown_family_is_one_line_and_exit_code_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", *argv]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith("shoal tasks: ")
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_seed_out_of_range_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tasks", "gcd_easy", "--seed", "-1"])
    assert end.value.code == 2
    assert "must be 0 to" in capsys.readouterr().err


SHOW = ["tasks", "show", "gcd_easy", "--model", "./chat", "--json"]


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with a chat template, in the folder `chat` of the folder that a test is in."""
    monkeypatch.chdir(tmp_path)
    tokenizer = tiny_models.tokenizer(answer_token=False)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path / "chat")
    tiny_models.model("qwen2").config.save_pretrained(tmp_path / "chat")


@pytest.mark.usefixtures("chat")
def test_the_very_text_that_a_model_sees_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHOW, "--shots", "2"]) == 0
    view = json.loads(capsys.readouterr().out)
    seen, question = view["seen"], view["sample"]["question"]
    assert seen["shots"] == 2 and seen["tokens"] > len(question)
    assert seen["text"].count("<user>") == 3 and seen["text"].count("<assistant>") == 3
    assert seen["text"].endswith("<assistant>")
    assert main([*SHOW, "--shots", "1", "--prompt", "plain"]) == 0
    plain = json.loads(capsys.readouterr().out)["seen"]["text"]
    assert plain.count("nswer:") == 2 and plain.endswith("nswer:") and "<user>" not in plain
    kept = Path(".shoal/node-chat")
    kept.mkdir(parents=True)
    digest = next(one for one in ALL_FAMILIES if one.name == "gcd_easy").digest.hex()
    (kept / "shots.json").write_text(json.dumps({"families": {digest: {"shots": 0}}}))
    assert main(SHOW) == 0
    assert json.loads(capsys.readouterr().out)["seen"]["text"].count("<user>") == 1


@pytest.mark.slow  # as many starts of the task worker again
@pytest.mark.usefixtures("chat")
def test_the_very_text_is_shown_of_a_new_and_of_an_embedded_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(SHOW) == 0
    assert json.loads(capsys.readouterr().out)["seen"]["shots"] == 4
    assert main(["tasks", "gcd_easy", "--model", "tiny"]) == 0
    assert "what the model sees (tiny: " in capsys.readouterr().out


def test_a_model_that_cannot_be_read_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["gcd_easy", "--model", "./nowhere"], ["show"], ["--model", "tiny"]):
        assert main(["tasks", *flags]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
