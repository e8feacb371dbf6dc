"""Lint, with a task worker in this process: which tasks are sound, and the findings on others."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal_tasks.lint.attempts import FORMS, Examples, LintRow, attempts, filled, shown
from shoal_tasks.lint.measure import FULL, Effort, lint
from shoal_tasks.lint.report import Level, Report
from shoal_tasks.task_file import examples_in, load_task_file
from tests.support.task_files import task_file
from tests.tasks.games import game_file
from tests.tasks.here import HereWorker

QUICK = Effort(seconds=60.0, rows=4, has_floor=False)
"""The quick part, with enough time for a busy machine."""
CITIES = dict(
    zip(
        ("Peru", "Ghana", "Nepal", "France", "Togo", "Mali", "Cuba", "Fiji", "Chad", "Iran"),
        ("Lima", "Accra", "Kathmandu", "Paris", "Lome", "Bamako", "Havana", "Suva", "Ndjamena",
         "Tehran"),
        strict=True,
    )
)  # fmt: skip
ROWS = [
    {"question": f"What is the capital of {land}?", "answer": city} for land, city in CITIES.items()
]
HEAD = "def reward(completions, question=(), answer=(), **columns):\n"
EACH = "    return [{} for c, a, q in zip(completions, answer, question)]\n"


def linted(
    folder: Path,
    effort: Effort = QUICK,
    rows: Sequence[Mapping[str, object]] = ROWS,
    **fields: object,
) -> Report:
    path = task_file(folder, "mine", rows, **fields)
    return lint(load_task_file(path), examples_in(path), effort, make_worker=HereWorker)


def rewarded(folder: Path, source: str, effort: Effort = QUICK, **fields: Any) -> Report:
    (folder / "reward.py").write_text(source)
    return linted(folder, effort, **{"reward": "reward.py", **fields})


def by(expression: str) -> str:
    """Return a reward with this expression of completion `c`, answer `a` and question `q`."""
    return HEAD + EACH.format(expression)


@pytest.mark.parametrize("effort", [QUICK, FULL], ids=["quick", "full"])
@pytest.mark.parametrize("answer_format", ["tagged", "plain"])
@pytest.mark.parametrize("verifier", ["exact", "math"])
def test_a_verifier_of_shoals_is_sound(
    tmp_path: Path, verifier: str, answer_format: str, effort: Effort
) -> None:
    rows = [{"question": f"What is twice {n}?", "answer": str(2 * n)} for n in range(1, 21)]
    found = linted(tmp_path, effort, rows, verifier=verifier, answer_format=answer_format)
    assert found.is_sound, found.findings
    assert found.right == 1 and max(found.wrong.values()) == 0
    assert found.seconds_per_score is not None and found.num_scores > 10
    assert (found.floor is not None) is (effort is FULL)


@pytest.mark.parametrize("form", FORMS, ids=shown)
def test_a_reward_that_expects_a_published_form_is_sound_and_the_form_is_named(
    tmp_path: Path, form: str
) -> None:
    (expected,) = {filled(form, "@")}
    found = rewarded(tmp_path, by(f"float(c.strip() == {expected!r}.replace('@', a).strip())"))
    assert found.is_sound, found.findings
    assert found.form == shown(form)


WRONG = {
    "constant": (by("0.37"), "it gives 0.37 to everything"),
    "nothing": (by("0.0"), "it gives 0.00 to everything"),
    "any text": (by("float(bool(c))"), "no form of the right answer"),
    "length": (by("min(1.0, len(c) / 20)"), "no form of the right answer"),
    "format alone": (by("0.5 * ('<answer>' in c)"), "no form of the right answer"),
    "a copy": (by("1.0 if q in c else 0.5 * (a in c)"), "a copy of the question, 'What is"),
    "any answer": (f"ALL = {list(CITIES.values())!r}\n" + by("float(c in ALL)"), "another row's"),
    "injected": (by("float('full marks' in c or a in c)"), "an instruction to the judge, 'Ignore"),
    "empty": (by("1.0 if not c else 0.5 * (a in c)"), "an empty answer, ''"),
    "one constant": (by("float(c in ('Lima', a))"), "a constant answer"),
    "reversed": (by("1.0 - (a in c)"), "only 0.00"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("effort", [QUICK, FULL], ids=["quick", "full"])
def test_a_reward_that_pays_for_something_else_is_refused_with_that_sentence(
    tmp_path: Path, kind: str, effort: Effort
) -> None:
    source, replied = WRONG[kind]
    rows = ROWS
    if kind == "one constant":  # most rows have it
        rows = [{**row, "answer": "Lima" if n < 7 else row["answer"]} for n, row in enumerate(ROWS)]
    found = rewarded(tmp_path, source, effort, rows=rows)
    if kind == "one constant":
        assert any("a constant answer" in one.message for one in found.findings)
        return
    assert found.is_refused, found.findings
    assert replied in found.sentence, found.sentence
    if kind not in ("constant", "nothing"):
        assert "row " in found.sentence and " earns " in found.sentence.replace("earn ", "earns ")


def test_a_form_that_is_not_known_is_named_with_those_that_were_tried(tmp_path: Path) -> None:
    source = by("float(c == '@@' + a + '@@')")
    found = rewarded(tmp_path, source)
    assert found.is_refused
    assert "<answer>X</answer>" in found.sentence and 'good = ["' in found.sentence
    assert set(found.forms) == set(map(shown, FORMS))
    found = rewarded(tmp_path, source, good=["@@{answer}@@"])
    assert found.is_sound, found.findings
    assert rewarded(tmp_path, source, good=["@@ {answer}"]).is_refused


@pytest.mark.parametrize(
    ("share", "is_sound"),
    [
        ("2 * (score - sum(scores) / len(scores)) / 2 / 2 + 0.5", True),
        ("(score == max(scores)) / scores.count(score)", True),
        ("sorted(scores).index(score) / len(scores)", True),
        ("1 - sorted(scores).index(score) / len(scores)", False),
        ("sum(scores) / len(scores)", False),
    ],
)
def test_a_reward_may_compare_the_completions_of_a_group(
    tmp_path: Path, share: str, is_sound: bool
) -> None:
    source = HEAD + (
        "    scores = [float(c == f'#### {a}') for c, a in zip(completions, answer)]\n"
        f"    return [{share} for score in scores]\n"
    )
    found = rewarded(tmp_path, source)
    assert found.is_sound is is_sound, found.findings
    assert found.form == ("#### X" if is_sound else found.form)


def test_a_row_is_one_group(tmp_path: Path) -> None:
    answer = r"so #### \\boxed{7}"
    rows = [LintRow(number=1, question="q?", answer=answer), LintRow(number=2, question="q?")]
    for row in rows:
        made = attempts(row, ["1", "2", "3", "4"], ["1", "2"], Examples())
        assert len(made) <= 64
        assert len({one.text for one in made}) == len(made)


def test_the_authors_examples_decide(tmp_path: Path) -> None:
    style = by("c.count('sea') / 4")
    good, bad = ["The sea, the sea, the sea."], ["The land."]
    rows = [{"question": f"Write about {land}."} for land in CITIES]
    assert rewarded(tmp_path, style, rows=rows, good=good, bad=bad).is_refused is True  # no answer
    style = HEAD + "    return [c.count('sea') / 4 for c in completions]\n"
    assert rewarded(tmp_path, style, rows=rows, good=good, bad=bad).is_sound
    found = rewarded(tmp_path, style, rows=rows, good=good, bad=["sea sea sea sea"])
    assert found.is_refused and "a bad example, 'sea sea sea sea', earns 1.00" in found.sentence


def test_a_row_may_have_an_example_of_its_own(tmp_path: Path) -> None:
    """A Countdown puzzle has many right formulas, and a few rows may have one."""
    rows: list[dict[str, object]] = [{"question": f"Reach {n}.", "goal": n} for n in range(40)]
    for n in (3, 7, 31):
        rows[n]["worked"] = f"{n}+0"
    source = (
        "import re\ndef reward(completions, goal):\n"
        "    return [float(re.fullmatch(r'\\d+[+]\\d+', c) is not None"
        " and sum(map(int, c.split('+'))) == g) for c, g in zip(completions, goal)]\n"
    )
    found = rewarded(tmp_path, source, rows=rows)
    assert not found.is_sound and not found.is_refused
    assert found.findings[0].level is Level.UNPROVEN and "no right answer" in found.sentence
    found = rewarded(tmp_path, source, rows=rows, good=["{worked}"])
    assert found.is_sound, found.findings


@pytest.mark.parametrize("column", ["solution", "ground_truth", "target"])
def test_an_answer_is_looked_for_where_the_file_names_none(tmp_path: Path, column: str) -> None:
    rows = [{"question": row["question"], column: row["answer"]} for row in ROWS]
    source = (
        f"def reward(completions, {column}):\n"
        f"    return [float(a in c) for c, a in zip(completions, {column})]\n"
    )
    assert rewarded(tmp_path, source, rows=rows).is_sound


@pytest.mark.parametrize(
    "source",
    [
        "N = []\n" + HEAD + "    share = 0.5 if N else 1\n"
        "    N.extend(c for c in completions if 'full marks' in c)\n"
        "    return [share * (a in c) for c, a in zip(completions, answer)]\n",
        "LAST = ['']\n" + HEAD + "    found = []\n    for c, a in zip(completions, answer):\n"
        "        found.append(float(a in c) * (0.5 if len(LAST[0]) > 60 else 1))\n"
        "        LAST[0] = c\n    return found\n",
    ],
    ids=["counts its calls", "remembers what came before"],
)
def test_a_score_that_does_not_repeat_is_refused(tmp_path: Path, source: str) -> None:
    found = rewarded(tmp_path, source)
    assert found.is_refused and "not deterministic" in found.sentence, found.findings


def test_a_reward_that_raises_is_refused_with_its_line(tmp_path: Path) -> None:
    found = rewarded(tmp_path, by("1 / c.count('<answer>')"))
    assert found.is_refused and "reward.py, line 2" in found.sentence
    late = by("float(a in c) if 'SOLUTION' not in c and '**' not in c else 1 / 0")
    found = rewarded(tmp_path, late)
    messages = [one.message for one in found.findings]
    assert any("ZeroDivisionError" in message for message in messages), messages


def test_a_slow_reward_is_reported_and_the_given_time_is_kept(tmp_path: Path) -> None:
    times = itertools.count(0, 30.0)  # each reading of the clock is half a minute later
    (tmp_path / "reward.py").write_text(by("float(a in c)"))
    path = task_file(tmp_path, "mine", ROWS, reward="reward.py")
    spec, examples = load_task_file(path), examples_in(path)

    def report(effort: Effort) -> Report:
        return lint(spec, examples, effort, clock=lambda: next(times), make_worker=HereWorker)

    quick = report(QUICK)
    assert not quick.is_complete and quick.num_scores < 10 and not quick.is_refused
    assert quick.findings[-1].level is Level.SKIPPED
    assert "one score takes" in quick.findings[-1].message
    assert not report(Effort(seconds=3.0, rows=4, has_floor=True)).is_sound
    long = report(Effort(seconds=1e6, rows=4, has_floor=False))
    assert any("a round of 64 completions" in one.message for one in long.findings)


@pytest.mark.parametrize("count", [1, 2, 10])
def test_one_answer_for_all_rows_is_refused(tmp_path: Path, count: int) -> None:
    rows = [{"question": f"{n}?", "answer": "yes"} for n in range(count)]
    found = linted(tmp_path, rows=rows, held_out=0)
    assert found.is_refused is (count > 1)
    if count > 1:
        assert "every row has the answer 'yes'" in found.sentence


def test_a_frequent_answer_is_reported(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "answer": "no" if n % 20 == 0 else "yes"} for n in range(100)]
    found = linted(tmp_path, FULL, rows)
    assert found.is_sound
    assert [one.level for one in found.findings] == [Level.WARNING, Level.WARNING]
    assert found.floor_answer == "'yes' to every question"


def test_a_custom_judge_is_not_called(tmp_path: Path) -> None:
    source = "def reward(completions, **columns):\n    raise RuntimeError('this call costs')\n"
    for effort in (QUICK, FULL):
        found = rewarded(tmp_path, source, effort, local=True)
        assert found.is_sound and found.num_scores == 0
        assert [one.level for one in found.findings] == [Level.SKIPPED]
        assert "may cost money" in found.findings[0].message
    assert rewarded(tmp_path, "def judge(): ...\n", FULL, local=True).is_refused


def games(folder: Path, source: str | None = None) -> Report:
    path = game_file(folder) if source is None else game_file(folder, source)
    return lint(load_task_file(path), examples_in(path), QUICK, make_worker=HereWorker)


GAME = """
N = []
class Game:
    def reset(self, seed):
        self.seed, self.left = seed, 3
        return "Say a number."

    def step(self, message):
        self.left -= 1
        N.append(1)
        return "More.", {reward}, self.left == 0
"""


def test_a_game_is_played_and_replayed(tmp_path: Path) -> None:
    found = games(tmp_path)
    assert found.is_sound and found.num_rows == QUICK.rows
    assert 0 < max(found.wrong.values()) < 1


@pytest.mark.parametrize(
    ("reward", "level", "replied"),
    [
        ("1 / 3", Level.REFUSED, "earns 1.00 in every game"),
        ("0.0", Level.WARNING, "every trial game earned 0.00"),
        ("0.1 * (len(N) > 110)", Level.REFUSED, "not repl"),
    ],
)
def test_a_game_without_skill_and_one_that_does_not_replay_are_reported(
    tmp_path: Path, reward: str, level: Level, replied: str
) -> None:
    found = games(tmp_path, GAME.format(reward=reward))
    assert (found.findings[0].level, replied in found.findings[0].message) == (level, True), found
