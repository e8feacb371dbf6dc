"""Importing torch takes seconds: what needs none of it to be refused is refused before.

Every flag and argument of every command is given words that are nothing. A command that begins to
import torch all the same must have been given what may be right: that is listed here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import pytest

from shoal.parsers import all_parsers
from shoal_settings.parser import Parser
from tests.shoal.test_bad_input import ARGUMENTS, FILES, STARTS
from tests.support.forked_commands import TORCH, Run, open_forks

ROW = json.dumps({"question": "1 + 1?", "answer": "2"}).encode() + b"\n"
GIVEN = {
    **FILES,
    "deep.toml": FILES["deep"],
    "folder/file": b"",
    "rows.jsonl": ROW * 2,
    "good.toml": b'name = "good"\nrows = "rows.jsonl"\n',
    "later/state.json": b'{"format_version": 99}',
}
WORDS = ("/no/such", "empty", "folder")
NEEDED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("trainer",): ("--alone", "--model=tiny", "--data-dir=run"),
    ("tasks",): ("gcd_easy",),
    ("tasks", "try"): ("good.toml", "--model=tiny"),
}
"""What stands before the flag that is tried, so that nothing else is refused."""
ENDS: dict[tuple[str, ...], tuple[str, ...]] = {("experiment",): ("--out=empty",)}
"""What stands behind it: this one would make a folder of any name, and begin."""
WITHOUT_TORCH = ("node", "join", "bootstrap", "judge", "swarm")
"""Commands that would begin. A contract of imports keeps torch out of their processes."""
MAY_BE_RIGHT = {
    *(("trainer", f"--remote-model={word}") for word in WORDS),
    ("trainer", "--data-dir=/no/such"),  # a folder that is not there yet
    ("trainer", "--data-dir=folder"),
    ("trainer", "--config=empty"),
}
"""Commands, and what they were given that is no reason to refuse."""


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a command in a fork."""
    with open_forks() as run:
        yield run


def cases() -> Iterator[tuple[str, ...]]:
    """Yield the commands."""
    for words, parser in all_parsers():
        if words[0] not in WITHOUT_TORCH:
            yield from of_parser(words, parser)


def of_parser(words: tuple[str, ...], parser: Parser) -> Iterator[tuple[str, ...]]:
    """Yield a command with each of its flags, and with one argument."""
    places = [one for one in parser._actions if not one.option_strings]
    usual = tuple(ARGUMENTS[one.dest] for one in places if one.nargs not in ("?", "*"))
    first, end = NEEDED.get(words, usual), ENDS.get(words, ())
    for action in parser._actions:
        shown = action.help != argparse.SUPPRESS
        if action.option_strings and action.nargs != 0 and shown:
            flag = action.option_strings[-1]
            if (words[0], flag) not in STARTS:
                yield from ((*words, *first, f"{flag}={word}", *end) for word in WORDS)
    yield from ((*words, word, *end) for word in WORDS)


@pytest.mark.slow
def test_torch_is_imported_for_what_may_be_right_alone(run: Run) -> None:
    reached = {
        (argv[0], argv[-1])
        for argv in cases()
        if run(argv, files=GIVEN, torchless=True)["code"] == TORCH
    }
    assert reached == MAY_BE_RIGHT


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("chat --checkpoint=later", "later has format 99"),
        ("chat --checkpoint=folder", "folder is not a checkpoint: it has no state.json"),
        ("chat --model=tiny --device=abacus", "--device 'abacus': must be auto, cpu"),
        ("serve --port=0 --model=tinny", "did you mean 'tiny'?"),
        ("experiment results --model=/no/such --out=new", "no such folder"),
        ("tasks try good.toml --model=folder", "this folder has no config.json"),
        ("tasks gcd_easy --model=empty", "this file is no .gguf"),
        ("tasks frozen_lake --play --model=folder", "this folder has no config.json"),
        ("trainer --alone --dtype=float16", "--dtype float16 cannot be trained"),
        ("trainer --alone --tasks=deep.toml", "deep.toml is not TOML"),
        ("trainer --alone --data-dir=empty", "cannot use empty as a folder"),
        ("export model --data-dir=run --out=new", "no checkpoint in run"),
    ],
)
def test_the_reason_is_printed(command: str, message: str, run: Run) -> None:
    answer = run(command.split(), files=GIVEN, torchless=True)
    assert answer["code"] in (1, 2, 3), answer
    (line,) = answer["err"].splitlines()
    assert message in line
