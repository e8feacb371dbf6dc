"""Help of every command: eighty columns, groups, choices, defaults, an example that parses."""

from __future__ import annotations

import argparse
import re
import shlex
from typing import Any

import pytest

from shoal.__main__ import COMMANDS, main
from shoal.parsers import all_parsers, parser_for
from shoal_settings.groups import BEGINNINGS, FIRST, choices_of, group_of
from shoal_settings.help_page import WIDTH, help_page
from shoal_settings.parser import Parser
from shoal_settings.schema import Settings, fields_of

PARSERS = {" ".join(words): parser for words, parser in all_parsers()}
WITH_MANY = [name for name, parser in PARSERS.items() if parser.first]
MOST_FLAGS = 16


@pytest.fixture(autouse=True)
def a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def listed(parser: Parser) -> list[argparse.Action]:
    """Return the flags that help names."""
    return [
        one
        for one in parser._actions
        if one.option_strings and one.help != argparse.SUPPRESS and one.option_strings[0] != "-h"
    ]


def row_of(page: str, flag: str) -> str:
    """Return what help says of a flag, in one line."""
    found = re.search(rf"^  (?:-\w, |--[\w-]+, )?{flag}\b.*(?:\n {{10,}}.*)*", page, re.M)
    return " ".join(found[0].split()) if found else ""


def test_every_command_and_every_part_has_a_parser() -> None:
    assert {name.split()[0] for name in PARSERS} == set(COMMANDS)
    assert {"judge report", "debug block", "debug rollouts"} <= set(PARSERS)


@pytest.mark.parametrize("name", PARSERS)
def test_help_fits_into_eighty_columns(name: str) -> None:
    for show_all in (False, True):
        page = help_page(PARSERS[name], show_all=show_all)
        assert max(map(len, page.splitlines())) <= WIDTH


def test_the_list_of_commands_fits_into_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= WIDTH


@pytest.mark.parametrize("name", PARSERS)
def test_help_says_what_it_does_and_gives_an_example_that_parses(name: str) -> None:
    page = help_page(PARSERS[name])
    assert page.startswith("usage: shoal ")
    does = page.split("\n\n")[1]
    assert len(does) > 10
    assert does[0].isupper()
    examples = re.findall(rf"^  (shoal {name}\b.*?)(?:   .*)?$", page, re.M)
    assert examples
    for example in examples:
        check_parses(example)


def check_parses(line: str) -> None:
    """Fail where a command line for people names what there is not; starts nothing."""
    words = shlex.split(line.split(">")[0])[1:]
    if words[0] == "join":
        words = ["node", *words[2:]]
    parser = parser_for(words)
    assert parser is not None, line
    given = words[len(parser.prog.split()) - 1 :]
    if given[:1] == ["show"]:
        given = given[1:]
    parser.parse_args(given)


@pytest.mark.parametrize("name", PARSERS)
def test_all_flags_stand_there_with_their_choices_and_defaults(name: str) -> None:
    parser = PARSERS[name]
    page = help_page(parser, show_all=True)
    for action in listed(parser):
        row = row_of(page, action.option_strings[0])
        assert row, action.option_strings
        for choice in (*(action.choices or ()), *choices(action)):
            assert str(choice) in row, row
        default = default_of(action)
        assert default in ("", "None") or default in row, (default, row)


def choices(action: argparse.Action) -> tuple[str, ...]:
    return choices_of(action.dest) if action.dest in Settings.model_fields else ()


def default_of(action: argparse.Action) -> str:
    value: Any = action.default
    if isinstance(value, bool | list | tuple) or action.nargs == 0:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("name", WITH_MANY)
def test_a_command_with_many_flags_shows_those_that_people_use_first(name: str) -> None:
    parser = PARSERS[name]
    page = help_page(parser)
    first = [one for one in listed(parser) if row_of(page, one.option_strings[0])]
    rest = [one for one in listed(parser) if one not in first]
    assert {one.dest for one in first} == set(parser.first)
    assert 8 <= len(first) <= MOST_FLAGS
    assert len(page.splitlines()) <= 80
    assert f"and {len(rest)} more: {parser.prog} --help-all" in page
    assert len(re.findall(r"^\S.*:$", help_page(parser, show_all=True), re.M)) >= 3


@pytest.mark.parametrize("name", sorted(set(PARSERS) - set(WITH_MANY)))
def test_a_command_with_few_flags_shows_them_all(name: str) -> None:
    parser = PARSERS[name]
    assert len(listed(parser)) <= MOST_FLAGS
    assert help_page(parser) == help_page(parser, show_all=True)


_MEMBER = r"|this (peer|node)\b|a swarm that"
FOREIGN = {
    "bootstrap": r"model|checkpoint|trainer|trains?\b|buffer|draws|a round\b|rewards?\b",
    "judge": r"model|checkpoint|trainer|trains?\b|buffer|draws|a round\b|[Ss]hards to listen",
    "swarm": r"node-MODEL|its interfaces|\bjudges\b" + _MEMBER,
    "trainer": r"identity, buffer|mDNS|this peer\b|swarm that",
    "node": r"records\b|of the swarm: in it",
}
"""By command: words of what it has not, does not do or is not, which no row of its help has."""
_ABOUT_ANOTHER = re.compile(r"`([a-z_]+)`")


@pytest.mark.parametrize("name", PARSERS)
def test_no_line_of_help_is_about_another_command(name: str) -> None:
    """A row names no other command, no setting of another, and nothing that this does not do."""
    own = {one.dest for one in listed(PARSERS[name])}
    rest = set(COMMANDS) - {name.split()[0]}
    for action in listed(PARSERS[name]):
        row = row_of(help_page(PARSERS[name], show_all=True), action.option_strings[0])
        named = set(_ABOUT_ANOTHER.findall(row))
        assert not named & rest, row
        assert not (named & set(Settings.model_fields)) - own, row
        found = re.search(FOREIGN.get(name, r"(?!)"), row)
        assert not found, row


@pytest.mark.parametrize("name", PARSERS)
def test_no_two_choices_are_described_alike(name: str) -> None:
    """Two flags, views or presets differ, so that one of two texts alike is about another."""
    helps = [one.help for one in listed(PARSERS[name])]
    views = [
        pseudo.help
        for one in PARSERS[name]._actions
        if isinstance(one, argparse._SubParsersAction)
        for pseudo in one._choices_actions
    ]
    in_row = [
        words
        for one in PARSERS[name]._actions
        if one.help != argparse.SUPPRESS
        for words in re.findall(r"\b\w+ \(([^()]{12,})\)", one.help or "")
    ]
    for texts in (helps, views, in_row):
        assert len(texts) == len(set(texts)), texts


def test_settings_have_groups_and_those_first_are_the_commands() -> None:
    assert set(BEGINNINGS) <= set(Settings.model_fields)
    assert {group_of(field) for field in Settings.model_fields} == set(BEGINNINGS.values())
    for command, first in FIRST.items():
        assert set(first) <= set(fields_of(command)), command
