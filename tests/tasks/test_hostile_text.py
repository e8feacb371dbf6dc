"""Texts made to run code in the scorer, or to hang or crash it, through every family."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_tasks.families import TRAIN_SEED_MIN, coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import ScoreRequest
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import FinishReason
from tests.tasks.families import ALL_FAMILIES

# Expensive to parse, and sometimes even right: they only need a result.
COSTLY_FORMULAS = ["¬" * 500 + "P", "(" * 250 + "P" + ")" * 250, "∧".join(["P"] * 250)]


def hostile_answers(canary: Path) -> list[str]:
    write = f"__import__('pathlib').Path({str(canary)!r}).write_text('x')"
    return [
        write,
        f"[{write}]",
        f"[[{write}]]",
        f"({write})",
        f"P ∧ {write}",
        f"{write}/1",
        "9**9**9**9",
        "[[9**9**9**9]]",
        "9" * 4096,
        "9" * 200_000,
        f"{'9' * 2000}/{'9' * 2000}",
        "1e999999999",
        "-1e-999999999",
        "sNaN",
        "Infinity",
        "(" * 2000 + ")" * 2000,
        "[" * 4000,
        "[" * 4000 + "]" * 4000,
        "∧".join("abcdefghijklmnopqrstuvwxyz"),
        "-" * 4000 + "1",
        "\\frac{" * 600,
        "$" * 4000,
        "<answer>" * 20_000,
        "\0\ud800\u202e",
        "None",
        " " * 4000,
        "٣/٤",
        "+".join(["(x+1)**999999999"] * 100),
        "(2*x)**999999999 + 7**7**7**7",
        "exp(" * 30 + "x" + ")" * 30,
        "sin(x)**" * 30 + "x",
        "10**10**10*x",
        "factorial(99999999)!!",
        "-" * 3000 + "x",
        "x" + "*x" * 1900,
        "1e308*" * 500 + "x",
        "Integral(x, (x, 0, " * 100,
        "lambda: 1",
        f"exec({write!r})",
        f"{write} or x**2",
        f"x.__class__.__init__.__globals__[{write}]",
        f"['A'][{write}]",
        f"'{{}}'.format({write})",
    ]


@pytest.mark.parametrize("spec", ALL_FAMILIES, ids=lambda spec: spec.name)
def test_hostile_texts_score_nothing_and_cost_nothing(
    worker: SyncTaskWorker, spec: FamilySpec, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    task = coordinates(spec, TRAIN_SEED_MIN + 99)
    item = worker.items([task])[0]
    honest = item.answer or str(item.example)
    wrap = "<answer>{}</answer>" if spec.answer_format == "tagged" else "{}"
    texts = [wrap.format(answer) for answer in hostile_answers(canary)]
    texts += hostile_answers(canary)
    costly = [wrap.format(formula) for formula in COSTLY_FORMULAS]
    requests = [
        ScoreRequest(task=task, text=text, finish_reason=FinishReason.STOP)
        for text in (*costly, wrap.format(honest), *texts, wrap.format(honest))
    ]
    restarts = worker.num_restarts
    results = worker.score(requests)
    first, *hostile, last = results[len(costly) :]
    assert first.reward == last.reward == 1.0
    assert all(result.reward < 1.0 for result in hostile)
    assert not any(result.timed_out or result.crashed for result in results)
    assert worker.num_restarts == restarts
    assert not canary.exists()
