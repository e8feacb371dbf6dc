"""`shoal tasks new DATA`: a task file for somebody's data, written by looking at it."""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal.tasks.from_verifiers import VERIFIERS, write_files
from shoal_base.extras import is_installed, missing_for_tasks
from shoal_base.files import create_atomically
from shoal_base.lines import say_json
from shoal_base.terminal import Terminal
from shoal_base.visible import visible_name
from shoal_settings.called import called
from shoal_settings.exits import EXIT_OK, fail
from shoal_settings.parser import Parser
from shoal_tasks.data_files import HUB, read_records
from shoal_tasks.errors import FamilyError, TaskError
from shoal_tasks.json_values import Record, number_text
from shoal_tasks.rows import FIRST_ROWS
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.worker.sync import SyncTaskWorker

DESCRIPTION = """\
Write a task file for data of your own, by looking at it: which columns hold question and answer,
what stands before the answer, and how answers are compared. Every answer it looks at is then
scored by the family's own verifier, and the first that would never be right is shown.

  shoal tasks new train.jsonl               writes train.toml, here
  shoal tasks new hf:openai/gsm8k/main      a data set of a hub (extra `data`)
  shoal tasks new verifiers:sums.Sums       the taskset Sums of the module sums, here or
                                            installed (extra `verifiers`): rows, a reward

Exit codes: 0 ok, 1 failed, 2 usage."""

_MOST: Final = 0.9
"""Share of rows that have to look alike before the file says so of all."""
_QUESTIONS: Final = ("question", "problem", "prompt", "instruction", "input", "query", "text")
_ANSWERS: Final = (
    *("answer", "final_answer", "solution", "target", "label"),
    *("output", "completion", "response", "gold"),
)
"""Names that data sets give to their columns, the likeliest first."""
_MARKS: Final = ("####", "The answer is:", "The answer is", "Answer:")
"""Marks that separate working from answer in data sets, the most telling first."""
_MATHS: Final = re.compile(r"[-+−]?[$]?[\d.,/]+%?|.*\\[a-zA-Z]+.*", re.DOTALL)
"""A number, or LaTeX."""
_NO_MATHS: Final = (
    "Answers are compared as text, so $24 is not 24: pip install 'shoal[math]' first, and "
    "numbers are compared by value"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFileKeys:
    """The keys of the task file and their values, in the file's order."""

    fields: Mapping[str, Any]
    note: str = ""
    """A sentence about a choice that another installation would make otherwise."""


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
            found = look_at(arguments.data, name)
        spec = _written(path, found)
    except (KeyboardInterrupt, BrokenPipeError):
        return EXIT_OK
    try:
        with SyncTaskWorker([spec]):  # refuses an answer that its own verifier does not accept
            pass
    except TaskError as error:
        # The file stays: what is wrong is mended in it.
        return fail("tasks new", f"{path} is written, and has to be changed: {error}").code
    if arguments.json:
        say_json({"schema_version": 1, "path": str(path), **found.fields})
    else:
        _show(Terminal(), path, found, spec)
    return EXIT_OK


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
    return TaskFileKeys(fields={"name": name, **written})


def look_at(data: str, name: str) -> TaskFileKeys:
    """Return the fields of a task file for `data`. Raises UsageExit with what is missing."""
    try:
        records = [record for _, record in itertools.islice(read_records(data, Path()), FIRST_ROWS)]
    except FamilyError as error:
        raise fail("tasks new", str(error)) from None
    if not records:
        raise fail("tasks new", f"{data} has no rows")
    question = _column(records, _QUESTIONS, "question", data)
    answer = _column(records, _ANSWERS, "answer", data, besides=question)
    answers = [str(number_text(record[answer])) for record in records]
    fields: dict[str, Any] = {"name": name, "rows": data}
    if question != "question":
        fields["question"] = question
    if answer != "answer":
        fields["answer"] = answer
    for mark in _MARKS:
        if _share(answers, lambda text, mark=mark: mark in text) >= _MOST:  # type: ignore[misc]
            fields["answer_after"] = mark
            answers = [text.rpartition(mark)[2] for text in answers if mark in text]
            break
    is_maths = _share(answers, lambda text: _MATHS.fullmatch(text.strip()) is not None) >= _MOST
    has_maths = is_installed("math_verify")
    fields["verifier"] = "math" if is_maths and has_maths else "exact"
    fields["answer_format"] = "tagged"
    return TaskFileKeys(fields=fields, note=_NO_MATHS if is_maths and not has_maths else "")


def _share(texts: Sequence[str], holds: Callable[[str], bool]) -> float:
    return sum(map(holds, texts)) / len(texts)


def _column(
    records: Sequence[Record], names: Sequence[str], key: str, data: str, *, besides: str = ""
) -> str:
    """Return the column named so, in capitals or not. Raises UsageExit where there is none."""
    columns = [name for name in records[0] if all(name in record for record in records)]
    for name in names:
        for column in columns:
            if column.casefold() == name and column != besides:
                return column
    listed = ", ".join(map(repr, columns)) or "none in every row"
    raise fail(
        "tasks new",
        f"which column of {data} holds the {key}? It has {listed}; write a task file with "
        f'{key} = "COLUMN" (docs/tutorials/your-own-task.md)',
    )


def _written(path: Path, found: TaskFileKeys) -> FamilySpec:
    """Write the file and read it back. Raises UsageExit: it is there, or cannot be written."""
    rows = found.fields["rows"]
    if not rows.startswith(HUB):
        # Named from where the file lies, so that the folder can be moved as a whole.
        fields = {**found.fields, "rows": _relative(Path(rows), path.parent)}
    else:
        fields = dict(found.fields)
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    lines += ["# docs/task-files.md has every key: prompt, system, reward, held_out, weight …", ""]
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


def _show(console: Terminal, path: Path, found: TaskFileKeys, spec: FamilySpec) -> None:
    rows, held_out = spec.config["rows"], spec.config["held_out"]
    console.print(f"{path} is written: {rows} rows, the last {held_out} kept for evaluation")
    for key, value in found.fields.items():
        console.print(f"  {key:<14} {visible_name(str(value))}")
    if found.note:
        console.print(found.note)
    console.print()
    console.print("next:")
    for words in (
        f"tasks {visible_name(spec.name)} --task-file {path}",
        f"tasks try {path} --model smollm2",
        f"node --model smollm2 --lora-rank 16 --tasks none --task-file {path}",
    ):
        console.print(f"  {called()} {words}", soft_wrap=True)


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
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
