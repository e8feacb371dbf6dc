"""A task family in one TOML file: its rows, its prompt and its verifier.

    name = "gsm8k"               # on the wire, unique in the swarm
    rows = "train.parquet"       # .jsonl, .json, .csv, .tsv, .parquet, a `datasets` folder, hf:NAME
    encoding = "cp1252"          # of a text file that does not show its encoding
    columns = ["question", "answer"]   # the column names of a file without them
    question = "question"        # the columns with question and answer
    answer = "answer"
    choices = "choices"          # multiple choice: their column or columns; the answer is a letter
    first_choice = 1             # the first one's number, if answers are numbers in a text
    answer_after = "####"        # the answer is the text after the last one of these
    prompt = "{question}\\nGive the number alone."     # the question as asked; {NAME} is a column
    prompt_shows_answer = true   # the prompt may contain the answer's column
    system = "You are good at sums."                   # the system turn before it
    verifier = "math"            # equal as mathematics, by math-verify; or "exact"; or "tests": the
                                 # completion is Python that passes the row's unit tests
    tests = "test"               # columns of such rows (default: common names)
    entry_point = "entry_point"
    solution = "canonical_solution"
    test_seconds = 5             # processor time of one completion's tests
    reward = "reward.py"         # instead of a verifier: the function `reward` of this file; or
                                 # several, ["form.py", "right.py:score"]
    reward_weights = [0.5, 1.0]  # the weight of each in the sum that is the reward; default: 1
    reward_range = [0, 1]        # what it may return; mapped to 0 to 1
    local = true                 # each node has its own `reward`, such as an LLM judge
    answer_format = "plain"      # the completion is the answer; or "tagged": between <answer> tags
    environment = "game.py"      # instead of rows: a multi-turn environment's class; or
                                 # textarena:GAME, or ws://HOST:PORT, an OpenEnv server
    action = "message"           # the field of the server's action that a message becomes, and the
    observation = "text"         # field of its observation that is shown
    class = "Game"               # its name in that file
    max_turns = 8                # maximum messages of one game
    weight = 1.0
    held_out = 10                # questions for evaluation, the file's last; default: a tenth
    case_matters = true          # questions that differ in case or white space are different
    good = ["#### {answer}"]     # completions that must earn more than wrong ones, and wrong ones,
    bad = ["#### 0"]             # for `shoal tasks lint`; not part of the family
    share = true                 # peers of the swarm may fetch the rows and the Python files
    title = "Sums"               # for people who are offered the task, at most 100 characters;
    licence = "CC-BY-4.0"        # these three are part of the family
    description = "Two sums."    # at most 1,000 characters

The rows are converted to a rows file in this user's cache (`rows_file`). Its digest identifies the
family, so the same rows from Parquet and from CSV are the same family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from shoal_base.toml_file import read_toml
from shoal_tasks.bundle import ACCEPTED_FILE, accepted_examples, can_travel, load_accepted
from shoal_tasks.data_files import ReadOptions, read_file
from shoal_tasks.errors import FamilyError, ServerUnavailable
from shoal_tasks.hub_rows import hub_rows_of
from shoal_tasks.lint.attempts import Examples
from shoal_tasks.openenv.address import PREFIXES, parse_address
from shoal_tasks.openenv.identity import look_up
from shoal_tasks.row_shapes import RowKeys
from shoal_tasks.rows import file_digest
from shoal_tasks.rows_file import make_rows_file
from shoal_tasks.spec import (
    ABOUT,
    ENVIRONMENT,
    EXACT,
    LOCAL,
    MATH_VERIFY,
    MAX_TEST_SECONDS,
    OPENENV,
    PYTHON,
    ROWS_GENERATOR,
    SERVER_FIELDS,
    TESTS,
    TEXT_ARENA,
    VERIFIER_VERSIONS,
    FamilySpec,
    JsonValue,
    environment,
)
from shoal_tasks.text_games import PREFIX, TEXT_GAMES
from shoal_tasks.unit_tests.forms import KEYS

_FIELDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "name": str,
    "rows": str,
    "encoding": str,
    "columns": list,
    "question": str,
    "answer": str,
    "answer_after": str,
    "choices": (str, list),
    "first_choice": int,
    "prompt": str,
    "prompt_shows_answer": bool,
    "system": str,
    "verifier": str,
    "reward": (str, list),
    "reward_weights": list,
    "reward_range": list,
    "local": bool,
    "tests": str,
    "entry_point": str,
    "solution": str,
    "test_seconds": int,
    "environment": str,
    "class": str,
    "action": str,
    "observation": str,
    "max_turns": int,
    "answer_format": str,
    "weight": (int, float),
    "held_out": int,
    "case_matters": bool,
    "good": list,
    "bad": list,
    "share": bool,
    "title": str,
    "licence": str,
    "description": str,
}
_VERIFIERS: Final = {"exact": EXACT, "math": MATH_VERIFY, "tests": TESTS}
_REWARD_NAME: Final = "reward"
"""The function that is called if `reward` names none after a colon."""
_GAME_KEYS: Final = (
    frozenset({"name", "environment", "class", "max_turns", "reward_range", "system", "weight"})
    | SERVER_FIELDS
    | {"share", *ABOUT}
)
_MAX_CHARS: Final = {"title": 100, "licence": 100, "description": 1000}
_CLASS_NAME: Final = "Game"
"""The class that is played if `class` names none."""
_MAX_TURNS: Final = 8
_TEST_SECONDS: Final = 5


def load_task_files(paths: Sequence[str]) -> tuple[FamilySpec, ...]:
    """Return the families of these files, with the local paths of their rows.

    Raises `FamilyError`, one line that names the file and the key, or the unavailable server.
    """
    try:
        return tuple(load_task_file(Path(path)) for path in paths)
    except ServerUnavailable as error:
        raise FamilyError(str(error)) from None


def unshared_task_files(paths: Sequence[str]) -> tuple[str, ...]:
    """Return those of a node's task files whose data or code a joining node needs a copy of."""
    found = []
    for path in map(Path, paths):
        try:
            table = {} if path.name == ACCEPTED_FILE else _read(path)
        except FamilyError:
            continue
        has_files = not str(table.get("environment", "")).startswith((PREFIX, *PREFIXES))
        if table and has_files and not table.get("share", False):
            found.append(str(path))
    return tuple(found)


def load_task_file(path: Path) -> FamilySpec:
    """Return the family of one file, or of a task that was accepted from a peer.

    Raises `FamilyError`, `ServerUnavailable`.
    """
    if path.name == ACCEPTED_FILE:
        return load_accepted(path)
    table = _read(path)
    make = _environment if "environment" in table else _family
    try:
        spec = make(table, path.parent)
        if not table.get("share", False):
            return spec
        _check_share(spec)
        return replace(spec, share=True, hub_rows=hub_rows_of(table))
    except FamilyError as error:
        raise FamilyError(f"{path}: {error}") from None


def _check_share(spec: FamilySpec) -> None:
    """Raise `FamilyError` where the author shares what does not travel."""
    if spec.is_local:
        raise FamilyError("share is not for local = true: each node has a reward of its own")
    if not can_travel(spec):
        raise FamilyError("share is of rows or a Python game, and this family has no file")


def examples_in(path: Path) -> Examples:
    """Return the author's examples of good and bad completions. Raises `FamilyError`."""
    if path.name == ACCEPTED_FILE:
        return accepted_examples(path)
    table = _read(path)
    return Examples(good=tuple(table.get("good", ())), bad=tuple(table.get("bad", ())))


def family_named_in(path: Path) -> str:
    """Return the name of a task file's family, without reading its data. Raises `FamilyError`."""
    if path.name == ACCEPTED_FILE:
        return load_accepted(path).name
    return str(_read(path)["name"])


def server_named_in(path: Path) -> tuple[str, str]:
    """Return the family's name and its OpenEnv server's address, without querying the server.

    Raises `FamilyError`.
    """
    table = _read(path)
    return table["name"], table.get("environment", "")


def _family(table: Mapping[str, Any], folder: Path) -> FamilySpec:
    rows = make_rows_file(table["rows"], folder, RowKeys.of(table), ReadOptions.of(table))
    has_reward, has_tests = "reward" in table, _has_tests(table)
    config: dict[str, JsonValue] = {
        "sha256": rows.sha256,
        "rows": rows.num_questions,
        "held_out": rows.num_held_out,
        "split": rows.split,
        **({"system": rows.system} if rows.system else {}),
        **_about(table),
    }
    if has_tests:
        config["test_seconds"] = _test_seconds(table)
    verifier = _VERIFIERS[table.get("verifier", "exact")]
    reward_paths: tuple[str, ...] = ()
    if has_reward:
        verifier = LOCAL if table.get("local", False) else PYTHON
        reward_paths, reward = _reward(table, folder)
        if verifier == LOCAL:
            del reward["reward_sha256s"]
        config |= reward
    return FamilySpec(
        name=table["name"],
        generator=ROWS_GENERATOR,
        config=config,
        weight=table.get("weight", 1.0),
        verifier=verifier,
        verifier_version=VERIFIER_VERSIONS[verifier],
        answer_format=table.get("answer_format", "plain" if has_reward or has_tests else "tagged"),
        path=str(rows.path),
        notes=rows.notes,
        reward_paths=reward_paths,
    )


def _has_tests(table: Mapping[str, Any]) -> bool:
    return bool(table.get("verifier") == TESTS)


def _test_seconds(table: Mapping[str, Any]) -> int:
    seconds: int = table.get("test_seconds", _TEST_SECONDS)
    if not 1 <= seconds <= MAX_TEST_SECONDS:
        raise FamilyError(f"test_seconds must be 1 to {MAX_TEST_SECONDS}, not {seconds}")
    return seconds


def _environment(table: Mapping[str, Any], folder: Path) -> FamilySpec:
    """Return the family of an environment. Raises `FamilyError`, `ServerUnavailable`."""
    named, path = table["environment"], ""
    is_on_a_server, is_listed = named.startswith(PREFIXES), named.startswith(PREFIX)
    if "class" in table and (is_listed or is_on_a_server):
        other = "a game of textarena" if is_listed else "an OpenEnv server"
        raise FamilyError(f"class needs a Python file, but this environment is {other}")
    which: dict[str, JsonValue]
    if is_listed:
        verifier, game = TEXT_ARENA, named.removeprefix(PREFIX)
        which = {"game": game}
        if game not in TEXT_GAMES:
            raise FamilyError(f"unknown game {named}; known are {', '.join(TEXT_GAMES)}")
    elif is_on_a_server:
        parse_address(named)
        found = look_up(named, table.get("action", ""), table.get("observation", ""))
        verifier, which, path = OPENENV, found.config, named
    elif any(key in table for key in SERVER_FIELDS):
        raise FamilyError("action and observation need an OpenEnv server")
    else:
        path = str((folder / named).resolve())
        verifier = ENVIRONMENT
        digest = file_digest(read_file(Path(path)))
        which = {"sha256": digest, "class": table.get("class", _CLASS_NAME)}
    config = {
        **which,
        "max_turns": table.get("max_turns", TEXT_GAMES.get(str(which.get("game")), _MAX_TURNS)),
        "reward_range": table.get("reward_range", [0, 1]),
        **_system(table),
        **_about(table),
    }
    weight = table.get("weight", 1.0)
    return environment(table["name"], verifier, config, path=path, weight=weight)


def _about(table: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return the texts for people. Raises `FamilyError`: one is too long, or not one line."""
    found: dict[str, JsonValue] = {key: table[key] for key in ABOUT if table.get(key)}
    for key, text in found.items():
        if len(str(text)) > _MAX_CHARS[key]:
            raise FamilyError(
                f"{key} has {len(str(text)):,} characters, at most {_MAX_CHARS[key]:,}"
            )
        if key != "description" and not str(text).isprintable():
            raise FamilyError(f"{key} must be one line of printable characters")
    return found


def _system(table: Mapping[str, Any]) -> dict[str, JsonValue]:
    return {"system": table["system"]} if "system" in table else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        table = read_toml(path)
    except OSError as error:
        raise FamilyError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise FamilyError(str(error)) from None
    for key, value in table.items():
        if key not in _FIELDS:
            raise FamilyError(f"{path}: unknown key {key!r}; known are {', '.join(_FIELDS)}")
        if not isinstance(value, _FIELDS[key]) or (
            isinstance(value, bool) and _FIELDS[key] is not bool
        ):
            raise FamilyError(f"{path}: {key} has the wrong type")
    for key in ("good", "bad"):
        if not all(isinstance(one, str) for one in table.get(key, ())):
            raise FamilyError(f'{path}: {key} must be a list of texts: {key} = ["{{answer}}"]')
    is_game = "environment" in table
    for key in ("name",) if is_game else ("name", "rows"):
        if key not in table:
            raise FamilyError(f"{path}: {key} is missing")
    for key in table:
        if is_game and key not in _GAME_KEYS:
            raise FamilyError(f"{path}: an environment has no {key}; remove it")
        if not is_game and key in ("class", "max_turns", *SERVER_FIELDS):
            raise FamilyError(f'{path}: {key} needs an environment: environment = "FILE.py"')
    if table.get("verifier", "exact") not in _VERIFIERS:
        raise FamilyError(
            f"{path}: verifier must be one of {', '.join(_VERIFIERS)}; "
            'for your own function, set reward = "FILE.py"'
        )
    for key in (*KEYS, "test_seconds"):
        if key in table and not _has_tests(table):
            raise FamilyError(f'{path}: {key} needs unit tests: verifier = "tests"')
    if "reward_weights" in table and "reward" not in table:
        raise FamilyError(f'{path}: reward_weights needs Python rewards: reward = ["FILE.py"]')
    if "local" in table and "reward" not in table:
        raise FamilyError(f'{path}: local needs a Python reward: reward = "FILE.py"')
    if "reward" in table and "verifier" in table:
        raise FamilyError(f"{path}: reward and verifier are both set; remove one of them")
    return table


def _reward(table: Mapping[str, Any], folder: Path) -> tuple[tuple[str, ...], dict[str, JsonValue]]:
    """Return the paths of a reward's Python files, and their keys in the family's configuration.

    Raises `FamilyError`.
    """
    stated = table["reward"] if isinstance(table["reward"], list) else [table["reward"]]
    weights = table.get("reward_weights", [1] * len(stated))
    if not stated or not all(isinstance(one, str) for one in stated):
        raise FamilyError('reward must be "FILE.py", "FILE.py:FUNCTION", or a list of these')
    if len(weights) != len(stated):
        raise FamilyError(
            f"reward names {len(stated)} functions, but reward_weights has {len(weights)} weights"
        )
    paths, names = [], []
    for one in stated:
        file, _, name = one.partition(":")
        paths.append((folder / file).resolve())
        names.append(name or _REWARD_NAME)
    return tuple(map(str, paths)), {
        "reward_sha256s": [file_digest(read_file(path)) for path in paths],
        "reward_names": names,
        "reward_weights": weights,
        "reward_range": table.get("reward_range", [0, 1]),
    }
