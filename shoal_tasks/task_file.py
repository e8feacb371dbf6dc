"""A family of one's own in one TOML file: which rows, asked how, scored how.

name = "gsm8k"               # on the wire, unique in the swarm
rows = "train.parquet"       # .jsonl, .json, .csv, .tsv, .parquet, a `datasets` folder, or hf:NAME
question = "question"        # the columns that hold question and answer
answer = "answer"
answer_after = "####"        # the answer is what stands behind the last one of these
prompt = "{question}\\nGive the number alone."     # what is asked; {NAME} is a column
system = "You are good at sums."                   # the system turn before it
verifier = "math"            # equal as mathematics, by math-verify; or "exact"
reward = "reward.py"         # in place of a verifier: the function `reward` of this file
reward_range = [0, 1]        # what it may return; mapped to 0 to 1
local = true                 # each node has a `reward` of its own, such as an LLM that judges
answer_format = "plain"      # the completion is the answer; or "tagged": between <answer> tags
environment = "game.py"      # in place of rows: a class that answers back; or textarena:GAME, or
                             # ws://HOST:PORT, an OpenEnv server
action = "message"           # the field of the server's action that a message becomes, and the
observation = "text"         # field of its observation that is shown
class = "Game"               # its name in that file
max_turns = 8                # most messages of one game
weight = 1.0
held_out = 10                # last rows, kept for evaluation; default: a tenth

A plain JSONL file of `question` and `answer` is used as it is. Anything else is converted into one,
once, in this user's cache: its digest is what a family is known by, so the same rows from Parquet
and from CSV are the same family.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from shoal_base.cache_folder import cache_folder
from shoal_base.files import write_atomically
from shoal_base.toml_file import read_toml
from shoal_tasks.answers import MAX_ANSWER_CHARS
from shoal_tasks.data_files import (
    HUB,
    MAX_FILE_BYTES,
    Record,
    as_json,
    is_folder,
    read_file,
    read_records,
)
from shoal_tasks.errors import FamilyError, ServerAway
from shoal_tasks.openenv.address import PREFIXES, parse_address
from shoal_tasks.openenv.identity import look_up
from shoal_tasks.rows import (
    FIRST_ROWS,
    MAX_ROW_QUESTION_CHARS,
    checked_text,
    file_digest,
    number_text,
    parse_rows,
    worked_beside,
)
from shoal_tasks.spec import (
    ENVIRONMENT,
    EXACT,
    LOCAL,
    MATH_VERIFY,
    OPENENV,
    PYTHON,
    ROWS_GENERATOR,
    SERVER_FIELDS,
    TEXT_ARENA,
    VERIFIER_VERSIONS,
    FamilySpec,
    JsonValue,
    canonical_json,
    environment,
)
from shoal_tasks.text_games import PREFIX, TEXT_GAMES

_FIELDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "name": str,
    "rows": str,
    "question": str,
    "answer": str,
    "answer_after": str,
    "prompt": str,
    "system": str,
    "verifier": str,
    "reward": str,
    "reward_range": list,
    "local": bool,
    "environment": str,
    "class": str,
    "action": str,
    "observation": str,
    "max_turns": int,
    "answer_format": str,
    "weight": (int, float),
    "held_out": int,
}
_VERIFIERS: Final = {"exact": EXACT, "math": MATH_VERIFY}
_SHAPING: Final = ("question", "answer", "answer_after", "prompt", "reward")
"""Keys that make other rows of a file than those that stand in it."""
_REWARD_NAME: Final = "reward"
"""The function that is called where `reward` names none behind a colon."""
_GAME_KEYS: Final = (
    frozenset({"name", "environment", "class", "max_turns", "reward_range", "system", "weight"})
    | SERVER_FIELDS
)
_CLASS_NAME: Final = "Game"
"""The class that is played where `class` names none."""
_MAX_TURNS: Final = 8
_PLACE: Final = re.compile(r"\{(\w+)\}")


def load_task_files(paths: Sequence[str]) -> tuple[FamilySpec, ...]:
    """Return the families of these files, with the places of their rows.

    Raises `FamilyError`, one line that names the file and the key, or the server that is away.
    """
    try:
        return tuple(load_task_file(Path(path)) for path in paths)
    except ServerAway as error:
        raise FamilyError(str(error)) from None


def load_task_file(path: Path) -> FamilySpec:
    """Return the family of one file. Raises `FamilyError`, `ServerAway`."""
    table = _read(path)
    make = _environment if "environment" in table else _family
    try:
        return make(table, path.parent)
    except FamilyError as error:
        raise FamilyError(f"{path}: {error}") from None


def server_named_in(path: Path) -> tuple[str, str]:
    """Return the family's name and its OpenEnv server's address, without asking the server.

    Raises `FamilyError`.
    """
    table = _read(path)
    return table["name"], table.get("environment", "")


def _family(table: Mapping[str, Any], folder: Path) -> FamilySpec:
    rows_path, data = _rows_file(table, folder)
    has_reward = "reward" in table
    num_rows = len(parse_rows(data, str(rows_path), is_answer_needed=not has_reward))
    held_out = table.get("held_out", num_rows // 10)
    if not 0 <= held_out < num_rows:
        raise FamilyError(f"held_out must be 0 to {num_rows - 1}, fewer than the rows")
    config: dict[str, JsonValue] = {
        "sha256": file_digest(data),
        "rows": num_rows,
        "held_out": held_out,
        **_system(table),
    }
    verifier, reward_path = _VERIFIERS[table.get("verifier", "exact")], ""
    if has_reward:
        verifier = LOCAL if table.get("local", False) else PYTHON
        reward_path, reward = _reward(table, folder)
        if verifier == LOCAL:
            del reward["reward_sha256"]
        config |= reward
    return FamilySpec(
        name=table["name"],
        generator=ROWS_GENERATOR,
        config=config,
        weight=table.get("weight", 1.0),
        verifier=verifier,
        verifier_version=VERIFIER_VERSIONS[verifier],
        answer_format=table.get("answer_format", "plain" if has_reward else "tagged"),
        path=str(rows_path),
        reward_path=reward_path,
    )


def _environment(table: Mapping[str, Any], folder: Path) -> FamilySpec:
    """Return the family of an environment. Raises `FamilyError`, `ServerAway`."""
    named, path = table["environment"], ""
    is_on_a_server, is_listed = named.startswith(PREFIXES), named.startswith(PREFIX)
    if "class" in table and (is_listed or is_on_a_server):
        other = "a game of textarena" if is_listed else "an OpenEnv server"
        raise FamilyError(f"class is of a Python file, and {other} has none")
    which: dict[str, JsonValue]
    if is_listed:
        verifier, game = TEXT_ARENA, named.removeprefix(PREFIX)
        which = {"game": game}
        if game not in TEXT_GAMES:
            raise FamilyError(f"no game {named}; there are {', '.join(TEXT_GAMES)}")
    elif is_on_a_server:
        parse_address(named)
        found = look_up(named, table.get("action", ""), table.get("observation", ""))
        verifier, which, path = OPENENV, found.config, named
    elif any(key in table for key in SERVER_FIELDS):
        raise FamilyError("action and observation are of an OpenEnv server")
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
    }
    weight = table.get("weight", 1.0)
    return environment(table["name"], verifier, config, path=path, weight=weight)


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
            raise FamilyError(f"{path}: unknown key {key!r}; there are {', '.join(_FIELDS)}")
        if not isinstance(value, _FIELDS[key]) or (isinstance(value, bool) and key != "local"):
            raise FamilyError(f"{path}: {key} has the wrong type")
    is_game = "environment" in table
    for key in ("name",) if is_game else ("name", "rows"):
        if key not in table:
            raise FamilyError(f"{path}: {key} is missing")
    for key in table:
        if is_game and key not in _GAME_KEYS:
            raise FamilyError(f"{path}: an environment has no {key}")
        if not is_game and key in ("class", "max_turns", *SERVER_FIELDS):
            raise FamilyError(f'{path}: {key} is of an environment, environment = "FILE.py"')
    if table.get("verifier", "exact") not in _VERIFIERS:
        raise FamilyError(
            f"{path}: verifier must be one of {', '.join(_VERIFIERS)}; "
            'a function of your own is named by reward = "FILE.py"'
        )
    if "local" in table and "reward" not in table:
        raise FamilyError(f'{path}: local is of a reward in Python, reward = "FILE.py"')
    if "reward" in table and "verifier" in table:
        raise FamilyError(f"{path}: reward and verifier are both named; a family has one of them")
    return table


def _reward(table: Mapping[str, Any], folder: Path) -> tuple[str, dict[str, JsonValue]]:
    """Return where a reward's Python file lies, and what the family's configuration says of it."""
    file, _, name = str(table["reward"]).partition(":")
    path = (folder / file).resolve()
    return str(path), {
        "reward_sha256": file_digest(read_file(path)),
        "reward_name": name or _REWARD_NAME,
        "reward_range": table.get("reward_range", [0, 1]),
    }


def _rows_file(table: Mapping[str, Any], folder: Path) -> tuple[Path, bytes]:
    """Return where the family's rows lie as JSONL of questions and answers, and its bytes."""
    source = table["rows"]
    path = (folder / source).resolve()
    is_lines = path.suffix.lower() not in (".json", ".csv", ".tsv", ".parquet")
    is_file = not source.startswith(HUB) and not is_folder(path)
    if is_lines and is_file and not any(key in table for key in _SHAPING):
        return path, read_file(path)
    return _converted(table, folder)


def _converted(table: Mapping[str, Any], folder: Path) -> tuple[Path, bytes]:
    """Convert a data set into a rows file in the cache, named by its own digest."""
    source = table["rows"]
    lines = []
    worked: dict[str, str] = {}
    for place, record in read_records(source, folder):
        where = f"{source}, {place}"
        row = _shaped(record, table, where)
        if "answer_after" in table and len(worked) < FIRST_ROWS:
            text = str(record[table.get("answer", "answer")]).rpartition(table["answer_after"])[0]
            worked[str(row["question"])] = text.strip()
        lines.append(canonical_json(row).encode(errors="surrogatepass"))
    data = b"\n".join(lines) + b"\n"
    if not lines or len(data) > MAX_FILE_BYTES:
        raise FamilyError(f"{source} has {'too many' if lines else 'no'} rows")
    try:
        kept = cache_folder("rows")
        kept.mkdir(parents=True, exist_ok=True)
        path = kept / f"{file_digest(data)}.jsonl"
        if not path.exists():
            write_atomically(path, data)
        if any(worked.values()):
            write_atomically(worked_beside(path), json.dumps(worked).encode())
    except LookupError as error:
        raise FamilyError(str(error)) from None
    except OSError as error:
        raise FamilyError(f"cannot write {error.filename}: {error.strerror}") from None
    return path, data


def _shaped(record: Record, table: Mapping[str, Any], where: str) -> dict[str, JsonValue]:
    """Return one row in the form of a rows file. Raises `FamilyError`."""
    has_reward = "reward" in table
    columns = {key: as_json(value) for key, value in record.items()}
    # A reward is given every column; without one, the others would only make the file larger.
    row: dict[str, JsonValue] = dict(columns) if has_reward else {}
    question = _column(columns, table.get("question", "question"), "question", where)
    if "prompt" in table:
        question = _filled(table["prompt"], columns, where)
    row["question"] = checked_text(question, "question", where, MAX_ROW_QUESTION_CHARS)
    named = table.get("answer", "answer")
    if named in columns or not has_reward:
        answer = number_text(_column(columns, named, "answer", where))
        if "answer_after" in table:
            answer = _behind(str(answer), table["answer_after"], where)
        row["answer"] = checked_text(answer, "answer", where, MAX_ANSWER_CHARS).strip()
    return row


def _column(columns: Mapping[str, JsonValue], name: str, key: str, where: str) -> JsonValue:
    if name not in columns:
        raise FamilyError(
            f"{where} has no column {name!r}, but {', '.join(map(repr, columns))}: "
            f'name the one that holds the {key}, {key} = "…"'
        )
    value = columns[name]
    # A prompt in the chat form of `datasets`: one user turn, whose content is the question.
    if key == "question" and isinstance(value, list):
        users = [one for one in value if isinstance(one, dict) and one.get("role") == "user"]
        if len(users) == 1 and len(value) == 1:
            return users[0].get("content")
    return value


def _filled(template: str, columns: Mapping[str, JsonValue], where: str) -> str:
    """Return the template with each `{NAME}` replaced by that column's text."""

    def text_of(place: re.Match[str]) -> str:
        value = number_text(_column(columns, place[1], "text", where))
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _PLACE.sub(text_of, template)


def _behind(text: str, mark: str, where: str) -> str:
    """Return what stands behind the last `mark`. Raises `FamilyError` where there is none."""
    _, found, answer = text.rpartition(mark)
    if not found:
        raise FamilyError(f"{where}: {mark!r} (answer_after) is not in its answer")
    return answer
