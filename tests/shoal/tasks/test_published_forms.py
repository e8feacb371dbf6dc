"""`shoal tasks new` on data in the forms in which it is published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.__main__ import main
from tests.tasks.published_forms import FORMS

QUICK = ("gsm8k", "MMLU", "HumanEval", "unknown")
"""One of each kind; the others are of the slow suite."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FORMS],
)
def test_a_published_form_becomes_a_task_that_can_be_answered(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    form = FORMS[name]
    Path("data.jsonl").write_text("".join(f"{json.dumps(form.row(n))}\n" for n in range(40)))
    code = main(["tasks", "new", "data.jsonl", *form.flags, "--json"])
    output = capsys.readouterr()
    if form.refused:
        assert code == 2 and form.refused in output.err and output.err.count("\n") == 1
        assert not Path("data.toml").exists()
        return
    assert code == 0, output.err
    view = json.loads(output.out)
    shown = "\n".join(message["content"] for message in view["messages"])
    assert all(text in shown for text in form.shows), shown
    assert not any(text in shown for text in form.hides), shown
    if form.expected:
        assert view["expected"] == f"<answer>{form.expected}</answer>"
    assert form.keys.items() <= view.items()
    assert set(form.unused) <= set(view["unused"])
    assert view["sound"], view["doubt"]
