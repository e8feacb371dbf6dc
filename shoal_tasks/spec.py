"""A task family as data: which generator, with which configuration, scored how.

Pure: importing this costs nothing of reasoning_gym, so the node may hold specs in its process.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from shoal_tasks.errors import FamilyError, NewerFamilyError
from shoal_tasks.generators import ALLOWED_GENERATORS
from shoal_tasks.own_games import OWN_GAMES
from shoal_tasks.turns import MAX_TURNS
from shoal_wire.limits import MAX_NAME_BYTES, SHORT_DIGEST_BYTES
from shoal_wire.types import Digest

VERIFIER: Final = "reasoning_gym"
VERIFIER_VERSION: Final = "0.1.25"
"""The release whose scorers were read; another release may generate other questions."""

EXACT: Final = "exact"
"""The answer is the row's, but for white space around it."""

MATH_VERIFY: Final = "math_verify"
"""The answer equals the row's as mathematics."""

PYTHON: Final = "python"
"""The reward is what a Python function beside the task file returns for the whole completion."""

LOCAL: Final = "local"
"""The same, but of a function that each node chooses for itself, and that need not repeat itself:
an LLM that judges. The family does not say which, so no two nodes need agree on a reward."""

ENVIRONMENT: Final = "environment"
"""The generator of every family that answers back, and the verifier of one in a Python file: the
reward is what the environment gives while the completion's messages are replayed."""

TEXT_ARENA: Final = "textarena"
"""The reward is what a game of this library gives while the messages are replayed."""

OWN_GAME: Final = "own_game"
"""The reward is what a game that comes with shoal gives while the messages are replayed."""

OPENENV: Final = "openenv"
"""The reward is what the operator's OpenEnv server gives while the messages are replayed."""

VERIFIER_VERSIONS: Final[Mapping[str, str]] = {
    VERIFIER: VERIFIER_VERSION,
    EXACT: "1",
    MATH_VERIFY: "0.9.0",
    PYTHON: "1",
    LOCAL: "1",
    ENVIRONMENT: "1",
    TEXT_ARENA: "0.7.4",
    OWN_GAME: "1",
    OPENENV: "1",
}

ROWS_GENERATOR: Final = "rows"
"""Not a data set of the library: the tasks are the rows of a file that a peer has or has not."""

_VERIFIERS: Final[Mapping[str, frozenset[str]]] = {
    ROWS_GENERATOR: frozenset({EXACT, MATH_VERIFY, PYTHON, LOCAL}),
    ENVIRONMENT: frozenset({ENVIRONMENT, TEXT_ARENA, OWN_GAME, OPENENV}),
}
"""The verifiers of a generator's tasks, where the library is not the one."""

_ROWS_CONFIG: Final = frozenset({"sha256", "rows", "held_out"})
_REWARD_CONFIG: Final = frozenset({"reward_sha256", "reward_name", "reward_range"})
"""Further keys of a family of rows whose verifier is a Python function."""
_CONFIG_OF: Final[Mapping[str, frozenset[str]]] = {
    PYTHON: _ROWS_CONFIG | _REWARD_CONFIG,
    LOCAL: _ROWS_CONFIG | _REWARD_CONFIG - {"reward_sha256"},
}
"""The keys of a family of rows by its verifier; `_ROWS_CONFIG` of any other."""
_OPTIONAL_CONFIG: Final = frozenset({"system"})
"""Keys that families of rows and environments may have: the system turn before each question."""

SERVER_CONFIG: Final = frozenset({"environment", "version", "schema_sha256", "games_sha256"})
"""Keys that say which environment a server has."""
SERVER_FIELDS: Final = frozenset({"action", "observation"})
"""Keys that name the field of an action or observation where the schema leaves a choice."""

_GAME_CONFIG: Final = frozenset({"max_turns", "reward_range"})
"""Keys of every environment, beside those that say which it is."""

MAX_CONFIG_BYTES: Final = 4096
"""Longest canonical configuration, UTF-8."""

RESERVED_CONFIG_KEYS: Final = frozenset({"seed", "size"})
"""Set from a task's coordinates, never by a family."""

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


class AnswerFormat(StrEnum):
    """The place of the answer in a completion."""

    PLAIN = "plain"
    """The whole completion, stripped, and it must have ended by itself."""
    TAGGED = "tagged"
    """Between the last pair of ``<answer>`` tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySpec:
    """One task family of a swarm. Raises `FamilyError` on a field that cannot be used."""

    name: str
    """Name on the wire, unique in a swarm; at most 200 bytes."""
    generator: str
    """Name of a reasoning_gym dataset, one of `ALLOWED_GENERATORS`."""
    config: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)
    """Keyword arguments of the dataset's configuration, without ``seed`` and ``size``."""
    weight: float = 1.0
    """Relative frequency in draws, > 0."""
    verifier: str = VERIFIER
    verifier_version: str = VERIFIER_VERSION
    answer_format: AnswerFormat = AnswerFormat.TAGGED
    path: str = field(default="", compare=False)
    """Path on this machine of the file of rows or of an environment, or the address of its OpenEnv
    server; never on the wire."""
    reward_path: str = field(default="", compare=False)
    """Path on this machine of the Python file of its reward; never on the wire."""
    _canonical: str = field(init=False, repr=False, compare=False)
    _digest: Digest = field(init=False, repr=False, compare=False)
    """Both made once: every question that is drawn or made asks for its family's."""

    @property
    def system(self) -> str:
        """The system turn before each question; empty for none."""
        has_system = self.generator in (ROWS_GENERATOR, ENVIRONMENT)
        return str(self.config.get("system", "")) if has_system else ""

    @property
    def is_environment(self) -> bool:
        """True if completions are games of several turns (`shoal_tasks.turns`)."""
        return self.generator == ENVIRONMENT

    @property
    def is_of_a_file(self) -> bool:
        """True if only a machine that has the family's file can make its tasks."""
        return "sha256" in self.config and self.generator in (ROWS_GENERATOR, ENVIRONMENT)

    @property
    def is_on_a_server(self) -> bool:
        """True if only a machine whose operator runs its OpenEnv server can make its tasks."""
        return self.is_environment and self.verifier == OPENENV

    @property
    def is_local(self) -> bool:
        """True if each node scores by a judge of its own."""
        return self.verifier == LOCAL

    @property
    def has_python_reward(self) -> bool:
        """True if completions are scored by a Python function of the user's."""
        return self.verifier in (PYTHON, LOCAL)

    @property
    def lane(self) -> str:
        """Name of the family's worker process: its OpenEnv server's address, or its judge's file;
        empty for the process of all other families.
        """
        if self.is_local:
            return self.reward_path
        return self.path if self.is_on_a_server else ""

    @property
    def max_turns(self) -> int:
        """Most messages of one completion; 1 for a family that asks and does not answer back."""
        turns = self.config["max_turns"] if self.is_environment else 1
        assert isinstance(turns, int)
        return turns

    def __post_init__(self) -> None:
        object.__setattr__(self, "answer_format", _answer_format(self.answer_format))
        if not self.name or len(self.name.encode()) > MAX_NAME_BYTES:
            raise FamilyError(f"family name must have 1 to {MAX_NAME_BYTES} bytes")
        if self.generator not in ALLOWED_GENERATORS | {ROWS_GENERATOR, ENVIRONMENT}:
            raise NewerFamilyError(
                f"family {self.name!r}: no reviewed generator {self.generator!r}"
            )
        if self.verifier not in _VERIFIERS.get(self.generator, {VERIFIER}):
            raise NewerFamilyError(f"family {self.name!r}: unknown verifier {self.verifier!r}")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise FamilyError(f"family {self.name!r}: weight must be finite and > 0")
        # A deep copy by way of JSON: later changes of the caller's dict must not reach the spec.
        text = _canonical(self.name, self.config)
        copied = json.loads(text)
        object.__setattr__(self, "config", MappingProxyType(copied))
        object.__setattr__(self, "_canonical", text)
        object.__setattr__(self, "_digest", digest_of(self.generator, text))
        if self.generator == ROWS_GENERATOR:
            _check_rows_config(self.name, self.verifier, copied)
        elif self.generator == ENVIRONMENT:
            _check_game_config(self.name, self.verifier, copied)


def _check_rows_config(name: str, verifier: str, config: Mapping[str, JsonValue]) -> None:
    digest, rows, held_out = (config.get(key) for key in ("sha256", "rows", "held_out"))
    wanted = _CONFIG_OF.get(verifier, _ROWS_CONFIG)
    good = (
        wanted <= set(config) <= wanted | _OPTIONAL_CONFIG
        and _is_sha256(digest)
        and type(rows) is int
        and type(held_out) is int
        and 0 <= held_out < rows
        and isinstance(config.get("system", ""), str)
        and (verifier not in _CONFIG_OF or _is_reward(config))
    )
    if not good:
        raise FamilyError(f"family {name!r}: rows need {', '.join(sorted(wanted))}")


def _check_game_config(name: str, verifier: str, config: Mapping[str, JsonValue]) -> None:
    turns, class_name = config.get("max_turns"), config.get("class")
    if verifier == OWN_GAME and config.get("game") not in OWN_GAMES:
        raise NewerFamilyError(f"family {name!r}: unknown game {config.get('game')!r}")
    optional = _OPTIONAL_CONFIG
    if verifier == OPENENV:
        which, optional = set(SERVER_CONFIG), _OPTIONAL_CONFIG | SERVER_FIELDS
        is_named = all(isinstance(config.get(key), str) for key in which) and all(
            isinstance(config.get(key, ""), str) for key in SERVER_FIELDS
        )
    elif verifier in (TEXT_ARENA, OWN_GAME):
        which = {"game"}
        is_named = isinstance(config.get("game"), str)
    else:
        which = {"sha256", "class"}
        is_named = _is_sha256(config.get("sha256")) and str(class_name).isidentifier()
    good = (
        _GAME_CONFIG | which <= set(config) <= _GAME_CONFIG | which | optional
        and is_named
        and type(turns) is int
        and 1 <= turns <= MAX_TURNS
        and _is_range(config["reward_range"])
        and isinstance(config.get("system", ""), str)
    )
    if not good:
        raise FamilyError(
            f"family {name!r}: an environment needs its class's name, reward_range = [least, most] "
            f"and max_turns from 1 to {MAX_TURNS}"
        )


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _is_reward(config: Mapping[str, JsonValue]) -> bool:
    """Return whether the keys of a Python reward can be used: its file, its name, and its range."""
    name = config["reward_name"]
    return (
        _is_sha256(config.get("reward_sha256", "0" * 64))
        and isinstance(name, str)
        and name.isidentifier()
        and _is_range(config["reward_range"])
    )


def _is_range(bounds: object) -> bool:
    """Return whether a value is two finite numbers, the smaller one first."""
    return (
        isinstance(bounds, list)
        and len(bounds) == 2
        and all(type(end) in (int, float) and math.isfinite(end) for end in bounds)
        and bounds[0] < bounds[1]
    )


def _answer_format(value: str) -> AnswerFormat:
    try:
        return AnswerFormat(value)
    except ValueError:
        raise FamilyError(f"answer_format must be plain or tagged, not {value!r}") from None


def _canonical(name: str, config: Mapping[str, JsonValue]) -> str:
    reserved = sorted(RESERVED_CONFIG_KEYS & set(config))
    if reserved:
        raise FamilyError(f"family {name!r}: config may not set {', '.join(reserved)}")
    if not all(isinstance(key, str) for key in config):
        raise FamilyError(f"family {name!r}: config keys must be strings")
    try:
        text = json.dumps(
            dict(config),
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
        )
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise FamilyError(f"family {name!r}: config is not JSON: {error}") from None
    if size > MAX_CONFIG_BYTES:
        raise FamilyError(f"family {name!r}: config is longer than {MAX_CONFIG_BYTES} bytes")
    return text


def canonical_config(spec: FamilySpec) -> str:
    """The configuration as JSON with sorted keys and no spaces: equal configs, equal text."""
    return spec._canonical


def digest_of(generator: str, canonical: str) -> Digest:
    """Return 16 bytes: truncated SHA-256 of a generator's name, NUL, and a canonical config."""
    return Digest(
        hashlib.sha256(f"{generator}\0{canonical}".encode()).digest()[:SHORT_DIGEST_BYTES]
    )


def config_digest(spec: FamilySpec) -> Digest:
    """Return the digest by which a family's tasks name it: `digest_of`."""
    return spec._digest


def spec_to_json(spec: FamilySpec) -> dict[str, JsonValue]:
    """The spec as a JSON object, for the worker's set-up message."""
    return {
        "name": spec.name,
        "generator": spec.generator,
        "config": json.loads(canonical_config(spec)),
        "weight": spec.weight,
        "verifier": spec.verifier,
        "verifier_version": spec.verifier_version,
        "answer_format": str(spec.answer_format),
        "path": spec.path,
        "reward_path": spec.reward_path,
    }


_FIELD_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "name": str,
    "generator": str,
    "config": dict,
    "weight": (int, float),
    "verifier": str,
    "verifier_version": str,
    "answer_format": str,
    "path": str,
    "reward_path": str,
}


def spec_from_json(value: object) -> FamilySpec:
    """Inverse of `spec_to_json`; raises `FamilyError` on anything else."""
    if not isinstance(value, dict) or set(value) - set(_FIELD_TYPES):
        raise FamilyError("a family must be an object with the known fields only")
    for key, wanted in _FIELD_TYPES.items():
        if key in value and (not isinstance(value[key], wanted) or isinstance(value[key], bool)):
            raise FamilyError(f"family field {key!r} has the wrong type")
    if "name" not in value or "generator" not in value:
        raise FamilyError("a family needs a name and a generator")
    return FamilySpec(**value)
