"""`shoal tasks new DATA`: writes a task file for your data."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from shoal.tasks.from_verifiers import VERIFIERS, write_files
from shoal.tasks.new_shown import ask_about, ask_column, ask_to_share, show_new, shown_question
from shoal_base.extras import is_installed, missing_for_tasks
from shoal_base.files import create_atomically
from shoal_base.lines import say_json
from shoal_base.terminal import Terminal
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, fail
from shoal_settings.parser import Parser
from shoal_tasks.data_files import HUB, ReadOptions, is_pinned, read_records
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Record
from shoal_tasks.lint.start import quick_report
from shoal_tasks.rows import FIRST_ROWS
from shoal_tasks.spec import FamilySpec
from shoal_tasks.suggest import NamedColumns, NoSuggestionError, suggest
from shoal_tasks.task_file import examples_in, load_task_file

DESCRIPTION = """\
Write a task file for your data. It detects which columns hold question, choices
and answer, what precedes the answer, and how answers are compared. It shows the
first prompt, names each column that it does not use, and checks that the task
rewards right answers, as the start of `shoal tasks lint` does.

  shoal tasks new train.jsonl               writes train.toml, here
  shoal tasks new hf:openai/gsm8k/main      a data set of a hub (extra `data`)
  shoal tasks new data.csv --question Q --answer A
  shoal tasks new puzzles.jsonl --prompt "Reach {goal}." --reward score.py
  shoal tasks new verifiers:sums.Sums       the taskset Sums of the module sums
                                            (extra `verifiers`): rows, a reward

In a terminal it asks about columns that it does not use, and whether peers may
fetch the task (share); in a script it names the flags.

Exit codes: 0 ok, 1 written and not sound, 2 usage."""

_NO_MATHS: Final = (
    "Answers are compared as text, so $24 is not 24: pip install 'shoal[math]' first, and "
    "numbers are compared by value"
)
_MAX_PROMPTED: Final = 8
"""Unused columns that a terminal prompts for; further ones are only named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFileKeys:
    """The keys of the task file and their values, in the file's order."""

    fields: Mapping[str, Any]
    unused: Mapping[str, str] = field(default_factory=dict)
    """Columns that no key names, with an example."""
    notes: tuple[str, ...] = ()
    """Notes for the author about decisions."""
    is_of_taskset: bool = False
    """True if rows and reward were written next to the task file."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal tasks new`; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        if (missing := missing_for_tasks()) is not None:
            raise fail("tasks new", missing)
        name = arguments.name or _stem(arguments.data)
        path = Path(arguments.out or f"{_stem(name)}.toml")
        if arguments.data.startswith(VERIFIERS):
            found = _of_taskset(arguments.data, name, path)
        else:
            found = _looked_at(arguments, name)
        if (
            _is_interactive(arguments)
            and _may_be_shared(found)
            and ask_to_share(Terminal(), _shared_files(found))
        ):
            found = replace(found, fields={**found.fields, "share": True})
        spec = _written(path, found)
        report = quick_report(spec, examples_in(path))
    except (KeyboardInterrupt, BrokenPipeError):
        return EXIT_OK
    if report.is_refused:
        # The file stays, so that its author can fix it.
        why = f"{path} is written, and has to be changed: {report.sentence}"
        return fail("tasks new", why, EXIT_FAILED).code
    if arguments.json:
        view = {"schema_version": 1, "path": str(path), **found.fields}
        say_json({**view, **shown_question(spec), "unused": dict(found.unused),
                  "notes": [*found.notes, *spec.notes], "sound": report.is_sound,
                  "doubt": report.sentence or None})  # fmt: skip
    else:
        show_new(Terminal(), path, found.fields, found.unused, (*found.notes, *spec.notes), spec,
                 report)  # fmt: skip
    return EXIT_OK


def _is_interactive(arguments: argparse.Namespace) -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not arguments.json


def _may_be_shared(found: TaskFileKeys) -> bool:
    rows = found.fields["rows"]
    return not rows.startswith(HUB) or is_pinned(rows)


def _shared_files(found: TaskFileKeys) -> str:
    """Return in words what leaves this machine if the task is shared."""
    is_named = found.fields["rows"].startswith(HUB)
    rows = f"the name {found.fields['rows']}" if is_named else "its rows"
    return f"{rows} and its reward's code" if "reward" in found.fields else rows


def _looked_at(arguments: argparse.Namespace, name: str) -> TaskFileKeys:
    """Look at the data; in a terminal, ask about what is not used."""
    given = NamedColumns(
        question=arguments.question or "",
        answer=arguments.answer or "",
        choices=tuple(arguments.choices or ()),
        first_choice=arguments.first_choice,
        prompt=arguments.template or "",
        reward=arguments.reward or "",
    )
    form: dict[str, Any] = {}
    if arguments.encoding:
        form["encoding"] = arguments.encoding
    if arguments.columns:
        form["columns"] = [column.strip() for column in arguments.columns.split(",")]
    if not _is_interactive(arguments):
        return look_at(arguments.data, name, given, form)
    console = Terminal()
    found, given = _with_columns(console, arguments.data, name, given, form)
    if given.prompt:
        return found
    prompt = found.fields.get("prompt", f"{{{found.fields.get('question', 'question')}}}")
    chosen = ask_about(console, list(found.unused.items())[:_MAX_PROMPTED])
    if not chosen:
        return found
    before = "".join(f"{{{column}}}\n\n" for column in chosen)
    return look_at(arguments.data, name, replace(given, prompt=f"{before}{prompt}"), form)


def _with_columns(
    console: Terminal, data: str, name: str, given: NamedColumns, form: Mapping[str, Any]
) -> tuple[TaskFileKeys, NamedColumns]:
    """Look at the data, asking for the columns of question and answer where they are not known."""
    records = _read(data, form)
    for _ in range(_MAX_PROMPTED):
        try:
            return _suggested(records, data, name, given, form), given
        except NoSuggestionError as error:
            if not error.key:
                raise fail("tasks new", f"{data}: {error}") from None
            named = ask_column(console, f"{data}: {error}", error.key)
            if not named:
                break
            is_question = error.key == "question"
            given = replace(given, question=named) if is_question else replace(given, answer=named)
    raise fail("tasks new", f"{data}: no column was named")


def _of_taskset(source: str, name: str, path: Path) -> TaskFileKeys:
    """Write rows and reward of a taskset. Raises UsageExit with what is wrong."""
    try:
        written = write_files(source, _stem(name), path.parent)
    except FamilyError as error:
        raise fail("tasks new", str(error)) from None
    except FileExistsError as error:
        raise fail("tasks new", f"{error.filename} is there already") from None
    except OSError as error:
        raise fail("tasks new", f"cannot write {error.filename}: {error.strerror}") from None
    return TaskFileKeys(fields={"name": name, **written}, is_of_taskset=True)


def look_at(
    data: str, name: str, given: NamedColumns | None = None, form: Mapping[str, Any] | None = None
) -> TaskFileKeys:
    """Return the fields of a task file for `data`. Raises UsageExit with what is missing.

    `form` are the keys that say how the file is read.
    """
    try:
        return _suggested(_read(data, form or {}), data, name, given or NamedColumns(), form or {})
    except NoSuggestionError as error:
        raise fail("tasks new", f"{data}: {error}") from None


def _read(data: str, form: Mapping[str, Any]) -> list[Record]:
    try:
        read = read_records(data, Path(), ReadOptions.of(form))
        records = [record for _, record in itertools.islice(read, FIRST_ROWS)]
        if not records:
            raise FamilyError(f"{data} has no rows")
    except FamilyError as error:
        raise fail("tasks new", str(error)) from None
    return records


def _suggested(
    records: Sequence[Record], data: str, name: str, given: NamedColumns, form: Mapping[str, Any]
) -> TaskFileKeys:
    """Return the fields that fit. Raises `NoSuggestionError`."""
    has_maths = is_installed("math_verify")
    found = suggest(records, given, has_maths=has_maths)
    notes = found.notes if has_maths or not found.is_maths else (*found.notes, _NO_MATHS)
    fields = {"name": name, "rows": data, **form, **found.keys}
    return TaskFileKeys(fields=fields, unused=found.unused, notes=notes)


def _written(path: Path, found: TaskFileKeys) -> FamilySpec:
    """Write the file and read it back. Raises UsageExit: it is there, or cannot be written."""
    rows = found.fields["rows"]
    if not rows.startswith(HUB):
        # Named from where the file lies, so that the folder can be moved as a whole.
        fields = {**found.fields, "rows": _relative(Path(rows), path.parent)}
    else:
        fields = dict(found.fields)
    if "reward" in fields and not found.is_of_taskset:
        file, mark, function = fields["reward"].partition(":")
        fields["reward"] = f"{_relative(Path(file), path.parent)}{mark}{function}"
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    lines += ["# docs/task-files.md has every key: prompt, system, reward, share, weight …", ""]
    try:
        create_atomically(path, "\n".join(lines).encode(), mode=0o644)
    except FileExistsError:
        raise fail("tasks new", f"{path} is there already; --out names another") from None
    except OSError as error:
        raise fail("tasks new", f"cannot write {path}: {error.strerror}") from None
    try:
        return load_task_file(path)
    except FamilyError as error:
        raise fail("tasks new", f"{path} is written, and has to be changed: {error}") from None


def _relative(rows: Path, folder: Path) -> str:
    try:
        return str(rows.resolve().relative_to(folder.resolve()))
    except ValueError:
        return str(rows.resolve())


def _stem(data: str) -> str:
    """A name for the family: the file's, or the data set's."""
    if data.startswith(VERIFIERS):
        return re.split(r"[.:/]", data.partition("@")[0])[-1].lower()
    bare = re.split(r"[@:]", data.removeprefix(HUB))[0] if data.startswith(HUB) else data
    name = Path(bare.split("/")[1] if data.startswith(HUB) and "/" in bare else bare).stem
    return re.sub(r"[^\w.-]+", "_", name) or "mine"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal tasks new", description=DESCRIPTION)
    parser.add_argument(
        "data",
        metavar="DATA",
        help="a file, a folder of save_to_disk, hf:NAME, or verifiers:MODULE.CLASS",
    )
    parser.add_argument("--name", help="the family's name in the swarm (default: the data's)")
    parser.add_argument("--out", metavar="FILE", help="the task file (default: NAME.toml here)")
    for flag, does in (
        ("question", "the column that holds the question"),
        ("answer", "the column that holds the right answer"),
    ):
        parser.add_argument(f"--{flag}", metavar="COLUMN", help=does)
    parser.add_argument(
        "--choices",
        metavar="COLUMN",
        action="append",
        help="the column with a row's choices; repeated, a column for each",
    )
    parser.add_argument(
        "--first-choice",
        metavar="N",
        type=int,
        choices=(0, 1),
        help="the number of the first choice, 0 or 1",
    )
    parser.add_argument(
        "--columns", metavar="A,B,C", help="names of the columns of a file that has none"
    )
    parser.add_argument("--encoding", help="encoding of a text that does not show it, as cp1252")
    parser.add_argument(
        "--prompt",
        dest="template",
        metavar="TEXT",
        help="what is asked, with {COLUMN} for a column's text",
    )
    parser.add_argument(
        "--reward", metavar="FILE", help="a Python file whose function `reward` scores"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
