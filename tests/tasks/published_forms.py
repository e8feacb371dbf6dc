"""Rows in the forms of well-known data sets, and the tasks made from them.

Each has the columns and types of its data set; the content was written for the tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_LANDS = ("Peru", "Ghana", "Nepal", "Togo", "Mali", "Cuba", "Fiji", "Chad", "Iran", "Oman")
_CITIES = ("Lima", "Accra", "Kathmandu", "Lome", "Bamako", "Havana", "Suva", "Ndjamena", "Tehran",
           "Muscat")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PublishedForm:
    """One data set's form."""

    row: Callable[[int], dict[str, Any]]
    """The row of a number from 0."""
    shows: tuple[str, ...] = ()
    """Texts that the first question shows."""
    hides: tuple[str, ...] = ()
    expected: str = ""
    """The answer of row 0."""
    keys: dict[str, Any] = field(default_factory=dict)
    """Keys that the task file must have."""
    unused: tuple[str, ...] = ()
    """Columns that are named as unused."""
    flags: tuple[str, ...] = ()
    refused: str = ""
    """The error if no task file can be written."""


def _four(n: int, right: int) -> list[str]:
    """Return four numbers, the right one (2n) at the place `right`."""
    others = [2 * n + 1, 2 * n + 2, 2 * n + 3]
    return list(map(str, [*others[:right], 2 * n, *others[right:]]))


def _mmlu(n: int) -> dict[str, Any]:
    return {"question": f"Which is {n} + {n}?", "subject": "sums", "choices": _four(n, n % 4),
            "answer": n % 4}  # fmt: skip


def _arc(n: int, labels: str) -> dict[str, Any]:
    return {"id": f"q{n}", "question": f"Which is {n} + {n}?",
            "choices": {"text": _four(n, n % 4), "label": list(labels)},
            "answerKey": labels[n % 4]}  # fmt: skip


def _chat(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


_LETTERED = ("A. 0", "B. 1", "C. 2", "D. 3")
_CONTEXT = tuple(f"The capital of {land} is {city}." for land, city in zip(_LANDS, _CITIES,
                                                                          strict=True))  # fmt: skip
_ASKED = tuple(f"What is the capital of {land}?" for land in _LANDS)


def _city(n: int) -> str:
    return _CITIES[n % 10] + "" * (n // 10)


FORMS: dict[str, PublishedForm] = {
    "gsm8k": PublishedForm(
        row=lambda n: {"question": f"Twice {n}?", "answer": f"{n} doubled is\n#### {2 * n}"},
        shows=("Twice 0?",), expected="0", keys={"answer_after": "####", "verifier": "math"},
    ),
    "MATH": PublishedForm(
        row=lambda n: {"problem": f"Simplify {n}/7.", "level": "Level 1", "type": "Algebra",
                       "solution": rf"It is $\boxed{{\frac{{{n}}}{{7}}}}$."},
        shows=("Simplify 0/7.",), expected=r"\frac{0}{7}", keys={"verifier": "math"},
        unused=("level", "type"),
    ),
    "AIME": PublishedForm(
        row=lambda n: {"ID": f"2024-{n}", "Problem": f"Find {n}.", "Solution": "long",
                       "Answer": n},
        shows=("Find 0.",), expected="0", keys={"question": "Problem", "answer": "Answer"},
        unused=("ID", "Solution"),
    ),
    "MMLU": PublishedForm(row=_mmlu, shows=_LETTERED, expected="A", keys={"choices": "choices"},
                          unused=("subject",)),
    "MMLU as CSV": PublishedForm(
        row=lambda n: {**_mmlu(n), "choices": repr(_four(n, n % 4)), "answer": "ABCD"[n % 4]},
        shows=_LETTERED, expected="A",
    ),
    "MMLU with columns": PublishedForm(
        row=lambda n: {"question": f"Which is {n} + {n}?",
                       **dict(zip("ABCD", _four(n, n % 4), strict=True)),
                       "answer": "ABCD"[n % 4]},
        shows=_LETTERED, expected="A", keys={"choices": ["A", "B", "C", "D"]},
    ),
    "MMLU-Pro": PublishedForm(
        row=lambda n: {"question_id": n, "question": f"Which is {n} + {n}?",
                       "options": _four(n, n % 4), "answer": "ABCD"[n % 4],
                       "answer_index": n % 4, "cot_content": "", "category": "sums"},
        shows=_LETTERED, expected="A", unused=("question_id", "category"),
    ),
    "ARC": PublishedForm(row=lambda n: _arc(n, "ABCD"), shows=_LETTERED, expected="A",
                         unused=("id",)),
    "ARC with numbers": PublishedForm(row=lambda n: _arc(n, "1234"), shows=_LETTERED, expected="A"),
    "OpenBookQA": PublishedForm(
        row=lambda n: {"id": str(n), "question_stem": f"Which is {n} + {n}?",
                       "choices": {"text": _four(n, n % 4), "label": list("ABCD")},
                       "answerKey": "ABCD"[n % 4]},
        shows=("Which is 0 + 0?", *_LETTERED), expected="A",
    ),
    "MedQA": PublishedForm(
        row=lambda n: {"question": f"Which is {n} + {n}?", "answer": str(2 * n),
                       "options": dict(zip("ABCD", _four(n, n % 4), strict=True)),
                       "answer_idx": "ABCD"[n % 4], "meta_info": "step1"},
        shows=_LETTERED, expected="A",
    ),
    "MedMCQA": PublishedForm(
        row=lambda n: {"id": str(n), "question": f"Which is {n} + {n}?",
                       **dict(zip(("opa", "opb", "opc", "opd"), _four(n, n % 4), strict=True)),
                       "cop": n % 4, "choice_type": "single", "exp": "It is so."},
        shows=_LETTERED, expected="A", keys={"choices": ["opa", "opb", "opc", "opd"]},
        unused=("exp",),
    ),
    "HellaSwag": PublishedForm(
        row=lambda n: {"ind": n, "activity_label": "Sums", "ctx_a": f"{n} + {n}",
                       "ctx": f"{n} + {n} is", "endings": _four(n, n % 4), "label": str(n % 4)},
        shows=("0 + 0 is", *_LETTERED), expected="A", unused=("activity_label",),
    ),
    "PIQA": PublishedForm(
        row=lambda n: {"goal": f"Double {n}.", "sol1": str(2 * n + n % 2),
                       "sol2": str(2 * n + 1 - n % 2), "label": n % 2},
        shows=("Double 0.", "A. 0", "B. 1"), expected="A",
    ),
    "WinoGrande": PublishedForm(
        row=lambda n: {"sentence": f"{n}: _ has cats.", "option1": f"{n} of us",
                       "option2": f"{n} of them", "answer": str(1 + n % 2)},
        shows=("0: _ has cats.", "A. 0 of us", "B. 0 of them"), expected="A",
        keys={"first_choice": 1},
    ),
    "SciQ": PublishedForm(
        row=lambda n: {"question": f"Which is {n} + {n}?", "distractor1": str(2 * n + 1),
                       "distractor2": str(2 * n + 2), "distractor3": str(2 * n + 3),
                       "correct_answer": str(2 * n), "support": f"Twice {n}"},
        shows=("A. ", "D. "), unused=("support",),
    ),
    "GPQA": PublishedForm(
        row=lambda n: {"Question": f"Which is {n} + {n}?", "Correct Answer": str(2 * n),
                       "Incorrect Answer 1": str(2 * n + 1), "Incorrect Answer 2": str(2 * n + 2),
                       "Incorrect Answer 3": str(2 * n + 3), "Subdomain": "sums"},
        shows=("A. ", "D. "), unused=("Subdomain",),
    ),
    "AQuA": PublishedForm(
        row=lambda n: {"question": f"Which is {n} + {n}?", "rationale": "so",
                       "options": [f"{letter}){one}" for letter, one in
                                   zip("ABCD", _four(n, n % 4), strict=True)],
                       "correct": "ABCD"[n % 4]},
        shows=_LETTERED, hides=("A. A)",), expected="A", unused=("rationale",),
    ),
    "MathQA": PublishedForm(
        row=lambda n: {"Problem": f"Which is {n} + {n}?",
                       "options": " , ".join(f"{letter} ) {one}" for letter, one in
                                             zip("abcd", _four(n, n % 4), strict=True)),
                       "correct": "abcd"[n % 4]},
        shows=_LETTERED, expected="A",
    ),
    "RACE": PublishedForm(
        row=lambda n: {"example_id": f"{n}.txt", "article": f"There are {n} cats.",
                       "answer": "ABCD"[n % 4], "question": "How many paws on two legs?",
                       "options": _four(n, n % 4)},
        shows=("There are 0 cats.", "How many paws", *_LETTERED), expected="A",
    ),
    "SocialIQA": PublishedForm(
        row=lambda n: {"context": f"There are {n} cats.", "question": "Twice as many?",
                       **dict(zip(("answerA", "answerB", "answerC"), _four(n, n % 3)[:3],
                                  strict=True)), "label": str(1 + n % 3)},
        shows=("There are 0 cats.", "Twice as many?", "A. 0", "C. 2"), expected="A",
        keys={"first_choice": 1},
    ),
    "TruthfulQA": PublishedForm(
        row=lambda n: {"question": f"Which is {n} + {n}?",
                       "mc1_targets": {"choices": _four(n, 0), "labels": [1, 0, 0, 0]}},
        shows=("A. ", "D. "),
    ),
    "SQuAD": PublishedForm(
        row=lambda n: {"id": str(n), "title": "Lands", "context": f"{n}: {_CONTEXT[n % 10]}",
                       "question": _ASKED[n % 10],
                       "answers": {"text": [_city(n)], "answer_start": [3]}},
        shows=("0: The capital of Peru is Lima.", "What is the capital of Peru?"), expected="Lima",
        unused=("title",),
    ),
    "BoolQ": PublishedForm(
        row=lambda n: {"question": f"is {n} even", "passage": f"{n} is a number.",
                       "answer": n % 2 == 0},
        shows=("0 is a number.", "is 0 even", "Answer with one of: false, true."), expected="true",
    ),
    "TriviaQA": PublishedForm(
        row=lambda n: {"question": f"{n}: {_ASKED[n % 10]}", "question_id": f"tc_{n}",
                       "answer": {"value": _city(n), "aliases": [_city(n), _city(n).upper()]}},
        shows=("What is the capital of Peru?",), expected="Lima",
    ),
    "Natural Questions": PublishedForm(
        row=lambda n: {"question": f"{n}: {_ASKED[n % 10]}", "answer": [_city(n), "other"]},
        shows=("What is the capital of Peru?",), expected="Lima",
    ),
    "yes and no": PublishedForm(
        row=lambda n: {"question": f"Is {n} even?", "answer": "no" if n % 2 else "yes"},
        shows=("Answer with one of: no, yes.",), expected="yes",
    ),
    "Alpaca": PublishedForm(
        row=lambda n: {"instruction": "Double the number.", "input": f"It is {n}.",
                       "output": str(2 * n)},
        shows=("Double the number.", "It is 0."), expected="0",
    ),
    "verl": PublishedForm(
        row=lambda n: {"data_source": "sums", "prompt": _chat(("user", f"Twice {n}?")),
                       "ability": "math", "extra_info": {"split": "train", "index": n},
                       "reward_model": {"style": "rule", "ground_truth": str(2 * n)}},
        shows=("Twice 0?",), expected="0", keys={"answer": "reward_model.ground_truth"},
    ),
    "DAPO": PublishedForm(
        row=lambda n: {"data_source": "math_dapo", "ability": "MATH",
                       "prompt": _chat(("user", f"Solve. Twice {n}? Put it after Answer:.")),
                       "reward_model": {"ground_truth": str(2 * n), "style": "rule-lighteval"},
                       "extra_info": {"index": str(n)}},
        shows=("Twice 0?",), expected="0", keys={"verifier": "math"},
    ),
    "open-r1": PublishedForm(
        row=lambda n: {"problem": f"Twice {n}?", "solution": f"It is ${2 * n}$.",
                       "answer": str(2 * n), "messages": _chat(("user", f"Twice {n}?"))},
        shows=("Twice 0?",), expected="0",
    ),
    "TRL with a system turn": PublishedForm(
        row=lambda n: {"prompt": _chat(("system", "Give a number."), ("user", f"Twice {n}?")),
                       "answer": str(2 * n)},
        shows=("Give a number.", "Twice 0?"), expected="0",
    ),
    "chat": PublishedForm(
        row=lambda n: {"messages": _chat(("user", f"{n}: {_ASKED[n % 10]}"),
                                         ("assistant", _city(n)))},
        shows=("What is the capital of Peru?",), hides=("Lima",), expected="Lima",
    ),
    "ShareGPT": PublishedForm(
        row=lambda n: {"id": str(n), "conversations": [
            {"from": "human", "value": f"{n}: {_ASKED[n % 10]}"},
            {"from": "gpt", "value": _city(n)}]},
        shows=("What is the capital of Peru?",), hides=("Lima",), expected="Lima",
    ),
    "units": PublishedForm(
        row=lambda n: {"question": f"How far is twice {n} km?", "unit": "metres",
                       "answer": 2000 * n},
        shows=("Give the answer in metres.",), expected="0",
    ),
    "capitals as a spreadsheet": PublishedForm(
        row=lambda n: {"Nr": n, "Question": f"{n}: {_ASKED[n % 10]}", "Answer": _city(n)},
        shows=("What is the capital of Peru?",), expected="Lima", unused=("Nr",),
    ),
    "HumanEval": PublishedForm(
        row=lambda n: {"task_id": f"Own/{n}", "entry_point": "add",
                       "prompt": f'def add(x):\n    """Return x + {n}."""\n',
                       "canonical_solution": f"    return x + {n}\n",
                       "test": f"def check(candidate):\n    assert candidate(3) == {n + 3}\n"},
        shows=("Return x + 0.",), hides=("return x",), keys={"verifier": "tests"},
        unused=("task_id",),
    ),
    "MBPP": PublishedForm(
        row=lambda n: {"task_id": n, "text": f"Write add, which adds {n}.",
                       "code": f"def add(x):\n    return x + {n}", "test_setup_code": "",
                       "test_list": [f"assert add(1) == {n + 1}", f"assert add(5) == {n + 5}"],
                       "challenge_test_list": []},
        shows=("Write add, which adds 0.", "assert add(1) == 1"),
        hides=("def add", "assert add(5)"), keys={"verifier": "tests"},
    ),
    "APPS": PublishedForm(
        row=lambda n: {"problem_id": n, "question": f"Read a number and print {n} more.",
                       "solutions": json.dumps([f"print(int(input()) + {n})"]),
                       "input_output": json.dumps({"inputs": ["1\n", "5\n"],
                                                   "outputs": [f"{n + 1}\n", f"{n + 5}\n"]}),
                       "difficulty": "introductory", "starter_code": ""},
        shows=("Read a number and print 0 more.",), keys={"verifier": "tests"},
        unused=("difficulty",),
    ),
    "LeetCode": PublishedForm(
        row=lambda n: {"question": f"Add {n} to a number.", "fn_name": "add",
                       "starter_code": "def add(x):\n    ...",
                       "input_output": json.dumps({"fn_name": "add", "inputs": [[1], [5]],
                                                   "outputs": [n + 1, n + 5]}),
                       "solutions": [f"def add(x):\n    return x + {n}\n"]},
        shows=("Add 0 to a number.", "def add(x):"), keys={"verifier": "tests"},
    ),
    "a named function": PublishedForm(
        row=lambda n: {"question": f"Add {n} to a number.", "entry_point": "add",
                       "canonical_solution": f"def add(x):\n    return x + {n}\n",
                       "test": f"def check(f):\n    assert f(3) == {n + 3}\n"},
        shows=("Add 0 to a number.", "Name the function add."), keys={"verifier": "tests"},
    ),
    "countdown": PublishedForm(
        row=lambda n: {"target": 20 + n, "nums": [20, n, 1]},
        refused="no column has a known name for the question: it has 'target' (number: 20), 'nums'",
    ),
    "UltraFeedback": PublishedForm(
        row=lambda n: {"prompt": f"Write about {n}.",
                       "chosen": _chat(("user", f"Write about {n}."), ("assistant", "Yes.")),
                       "rejected": _chat(("user", f"Write about {n}."), ("assistant", "No."))},
        refused="'chosen' and 'rejected' are preferences",
    ),
    "unknown": PublishedForm(
        row=lambda n: {"a": f"x{n}", "b": n},
        refused="--question COLUMN",
    ),
    "unknown, named": PublishedForm(
        row=lambda n: {"a": f"x{n}", "b": f"y{n}"}, flags=("--question", "a", "--answer", "b"),
        shows=("x0",), expected="y0",
    ),
}  # fmt: skip
