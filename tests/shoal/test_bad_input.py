"""For any input, a command prints one line with the problem, or succeeds.

Every flag and argument of every command's own parser is given words that mean nothing, files that
are none and text that is none; the settings, too, by a variable and by a file.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal.parsers import all_parsers
from shoal_base.files import SMALL_FILE_BYTES
from shoal_base.visible import visible_lines
from shoal_settings.exits import say_error
from shoal_settings.parser import Parser
from shoal_settings.schema import Settings, public_name
from tests.support.forked_commands import UNCAUGHT, open_forks

NUM_CASES = 600
MOST_SHOWN = 3_000
"""Characters of an error: a list of all commands and views is shorter."""
WITH_SETTINGS = ("node", "join", "bootstrap", "judge", "swarm", "trainer")
START_NOTHING = "--print-config"
ARGUMENTS = {
    "preset": "results",
    "peer": "x",
    "shell": "bash",
    "line": "shoal1x",
    "view": "id",
    "data": "text",
    "file": "text",
}
"""One that is taken, by the argument's name."""
WORDS = (
    *("", " ", "x", "-1", "0", "nan", "inf", "1e999", "9" * 400, "1,2", "0x10", "½", "None"),
    *("true", "--", "@x", "ключ 𝟙", "a\x1b[2J\u202eb", "a\nb", "A" * 70_000, "\udcff\udcfe"),
    *("none/none", ".", "/", "/dev/zero", "/proc/self/mem", "empty", "noise", "text", "deep"),
    *("http://[::1", "/ip4/1.2.3.4/tcp/1/p2p/x", "[]", "{}", "[[1]]"),
)
FILES = {
    "empty": b"",
    "noise": random.Random(1).randbytes(3000),
    "text": b"= [[\n",
    "deep": b"a = " + b"[" * 5000,
}
STARTS = {("page", "--data-dir"), ("page", "--http")}
"""Any word is a folder to it, or an address that is free: it would begin."""


@dataclass(frozen=True, slots=True)
class Case:
    """One command."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=lambda: FILES)


def of_parser(words: tuple[str, ...], parser: Parser) -> Iterator[Case]:
    """Yield what can be wrong with a command's flags and arguments."""
    ends = (START_NOTHING,) if words[0] in WITH_SETTINGS and len(words) == 1 else ()
    if words[0] == "experiment":
        ends = ("--out=text",)  # a file: with any arguments, it has no folder to begin in
    places = [one for one in parser._actions if not one.option_strings]
    needed = [ARGUMENTS[one.dest] for one in places if one.nargs not in ("?", "*")]
    for action in parser._actions:
        if not action.option_strings:
            continue
        flag = action.option_strings[-1]
        for word in WORDS if action.nargs != 0 else ("x", ""):
            if (words[0], flag) not in STARTS:
                yield Case((*words, *needed, f"{flag}={word}", *ends))
    for word in WORDS:
        yield Case((*words, *needed, word, *ends))
        if places and not isinstance(places[0], argparse._SubParsersAction):
            yield Case((*words, word, *ends))


def of_settings() -> Iterator[Case]:
    """Yield what can be wrong with a variable, and with a file."""
    for name in Settings.model_fields:
        key = public_name(name)
        for word in WORDS:
            command = random.Random(f"{key} {word[:20]!a}").choice(("node", "trainer", "bootstrap"))
            yield Case((command, START_NOTHING), env={f"SHOAL_{key.upper()}": word})
            if word.isprintable():
                line = f"{key} = {json.dumps(word)}\n".encode()
                yield Case((command, START_NOTHING), files={**FILES, "shoal.toml": line})
        for value in ("[[1]]", "{a = 1}", "nan", "-inf", "1979-05-27", "9" * 30, "[true]", "1.5"):
            files = {**FILES, "shoal.toml": f"{key} = {value}\n".encode()}
            yield Case(("node", START_NOTHING), files=files)


def all_cases() -> list[Case]:
    """Return all of them."""
    cases = [case for words, parser in all_parsers() for case in of_parser(words, parser)]
    return [*cases, *of_settings()]


def wrong_with(answer: dict[str, Any]) -> str:
    """Return what is not as it should be; nothing where all is."""
    code, output = answer["code"], answer["err"]
    if code is None:
        return "it did not end"
    if code == UNCAUGHT or code < 0 or code > 3 or "Traceback" in output:
        return f"it died with {code}"
    if code and (output or not answer["out"]) and len(output.splitlines()) != 1:
        return f"{len(output.splitlines())} lines"
    if len(output) > MOST_SHOWN:
        return f"{len(output)} characters"
    shown = list(visible_lines(output.removesuffix("\n")))
    return "it acts on the terminal" if output and output.splitlines() != shown else ""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_command_ends_in_one_line_whatever_is_typed() -> None:
    cases = random.Random(seed := random.randrange(1 << 32)).sample(all_cases(), NUM_CASES)
    wrong = {case.argv: found for case, found in zip(cases, played(cases), strict=True) if found}
    assert not wrong, f"seed {seed}: {wrong}"


def played(cases: list[Case]) -> Iterator[str]:
    """Yield what is wrong with how each ends."""
    with open_forks() as run:
        for case in cases:
            answer = run(case.argv, case.env, case.files)
            found = wrong_with(answer)
            yield f"{found}: {answer['err'][-300:]}" if found else ""


@pytest.mark.parametrize(
    "argv",
    [
        ("debug", "rollouts", "--limit=--"),
        ("invite", "--data-dir=--"),
        ("status", "--data-dir=" + "9" * 400),
        ("node", "--tasks=--"),
        ("tasks", "\udcff"),
        ("tasks", "absent.toml"),
        ("tasks", "deep.toml"),
        ("answer", "--author=\udcff\udcfe"),
        ("node", "--config=/dev/zero"),
        ("node", "--config=deep"),
        ("experiment", "results", "--seeds=" + "9" * 32),
        ("experiment", "results", "--rounds=0"),
        ("experiment", "results", "--tune=", "--jobs=0"),
        ("judge", "report", "--window=0"),
    ],
    ids=lambda argv: " ".join(argv)[:40],
)
def test_what_was_once_not_one_line(
    argv: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").write_bytes(FILES["deep"])
    (tmp_path / "deep.toml").write_bytes(FILES["deep"])
    try:
        code = main(argv)
    except SystemExit as end:
        code = int(end.code or 0)
    output = capsys.readouterr()
    assert code in (2, 3)
    assert not wrong_with({"code": code, "out": output.out, "err": output.err})


def test_a_file_of_settings_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shoal.toml").write_text("#" * SMALL_FILE_BYTES + "\n")
    assert main(["node", START_NOTHING]) == 2
    assert "too long" in capsys.readouterr().err


def test_a_word_without_end_is_cut_where_it_is_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    say_error("shoal", f"no command '{'A' * 70_000}'; there are some")
    assert len(capsys.readouterr().err) < 300
