"""A task family as data: its generator, its configuration and its verifier.

Pure: importing this does not import reasoning_gym, so the node can hold specs in its process.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Final, cast

from shoal_tasks.builtin_games import BUILTIN_GAMES
from shoal_tasks.errors import FamilyError, NewerFamilyError
from shoal_tasks.generators import ALLOWED_GENERATORS
from shoal_tasks.questions import SPLITS
from shoal_tasks.turns import MAX_TURNS
from shoal_wire.limits import MAX_NAME_BYTES, SHORT_DIGEST_BYTES
from shoal_wire.types import Digest

VERIFIER: Final = "reasoning_gym"
VERIFIER_VERSION: Final = "0.1.25"
"""The release whose scorers were reviewed; another release may generate other questions."""

EXACT: Final = "exact"
"""The answer equals the row's, apart from surrounding white space."""

MATH_VERIFY: Final = "math_verify"
"""The answer equals the row's as mathematics."""

PYTHON: Final = "python"
"""The reward is the result of a Python function, from a file, for the whole completion."""

LOCAL: Final = "local"
"""The same, but each node chooses its own function, which may be nondeterministic: an LLM judge.
The family does not say which, so no two nodes need to agree on a reward."""

TESTS: Final = "tests"
"""The reward is 1 if the completion's Python passes the row's unit tests, otherwise 0."""

TESTS_WORKER: Final = "unit tests"
"""Key of the worker process for all families with unit tests: only it may run completions."""

MAX_TEST_SECONDS: Final = 30

ENVIRONMENT: Final = "environment"
"""The generator of every multi-turn family, and the verifier of one in a Python file: the reward is
the environment's, when the completion's messages are replayed."""

TEXT_ARENA: Final = "textarena"
"""The reward is that of a game of this library, when the messages are replayed."""

BUILTIN_GAME: Final = "own_game"
"""The reward is that of a game of shoal's own, when the messages are replayed."""

OPENENV: Final = "openenv"
"""The reward is that of the operator's OpenEnv server, when the messages are replayed."""

VERIFIER_VERSIONS: Final[Mapping[str, str]] = {
    VERIFIER: VERIFIER_VERSION,
    EXACT: "1",
    MATH_VERIFY: "0.9.0",
    PYTHON: "2",
    LOCAL: "2",
    TESTS: "1",
    ENVIRONMENT: "1",
    TEXT_ARENA: "0.7.4",
    BUILTIN_GAME: "1",
    OPENENV: "1",
}

ROWS_GENERATOR: Final = "rows"
"""Not a data set of the library: the tasks are rows of a file, which a peer may or may not have."""

ABOUT: Final = ("title", "licence", "description")
"""Texts for people that a family of one's own may have. They are part of it: a peer cannot change
what another one reads about a task."""

SERVER_FIELDS: Final = frozenset({"action", "observation"})
"""Keys that choose the field of an action or observation, if a server's schema leaves a choice."""

_ROWS: Final = frozenset({"sha256", "rows", "held_out", "split"})
_GAME: Final = frozenset({"max_turns", "reward_range"})
_REWARD: Final = frozenset({"reward_names", "reward_weights", "reward_range"})
_KEYS: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    ROWS_GENERATOR: {
        EXACT: _ROWS,
        MATH_VERIFY: _ROWS,
        PYTHON: _ROWS | _REWARD | {"reward_sha256s"},
        LOCAL: _ROWS | _REWARD,
        TESTS: _ROWS | {"test_seconds"},
    },
    ENVIRONMENT: {
        ENVIRONMENT: _GAME | {"sha256", "class"},
        TEXT_ARENA: _GAME | {"game"},
        BUILTIN_GAME: _GAME | {"game"},
        OPENENV: _GAME | {"environment", "version", "schema_sha256", "games_sha256"},
    },
}
"""The keys of a family's configuration, by generator and verifier. It may also have the system turn
before each question, the texts of `ABOUT`, and `SERVER_FIELDS` on an OpenEnv server. Families of
other generators belong to reasoning_gym, and so do their keys."""

_OF_EACH_FUNCTION: Final = frozenset({"reward_names", "reward_sha256s", "reward_weights"})
"""Keys with one entry for each function of a reward."""

MAX_CONFIG_BYTES: Final = 4096
"""Maximum bytes of a canonical configuration, in UTF-8."""

RESERVED_CONFIG_KEYS: Final = frozenset({"seed", "size"})
"""Set from a task's coordinates, never by a family."""

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


class AnswerFormat(StrEnum):
    """The place of the answer in a completion."""

    PLAIN = "plain"
    """The whole completion, stripped; it must have ended by itself."""
    TAGGED = "tagged"
    """Between the last pair of ``<answer>`` tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySpec:
    """One task family of a swarm. Raises `FamilyError` if a field cannot be used."""

    name: str
    """Name on the wire, unique in a swarm; at most 200 bytes."""
    generator: str
    """Name of a reasoning_gym data set, one of `ALLOWED_GENERATORS`."""
    config: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)
    """Keyword arguments of the data set's configuration, without ``seed`` and ``size``."""
    weight: float = 1.0
    """Relative frequency of sampling, > 0."""
    verifier: str = VERIFIER
    verifier_version: str = VERIFIER_VERSION
    answer_format: AnswerFormat = AnswerFormat.TAGGED
    path: str = field(default="", compare=False)
    """Local path of the file of rows or of the environment, or the address of its OpenEnv server;
    never on the wire."""
    reward_paths: tuple[str, ...] = field(default=(), compare=False)
    """Local paths of the reward's Python files, one for each function; never on the wire."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Lines for the user about the task file's data, such as repeats; never on the wire."""
    share: bool = field(default=False, compare=False)
    """True if this node sends the family's files to peers that ask; never on the wire."""
    hub_rows: str = field(default="", compare=False)
    """JSON of the task file's keys that make the rows, if they are on a hub at a named commit."""
    canonical: str = field(init=False, repr=False, compare=False)
    """The configuration as `canonical_json`."""
    digest: Digest = field(init=False, repr=False, compare=False)
    """The digest by which tasks name the family: `digest_of`."""

    @property
    def system(self) -> str:
        """The system turn before each question; empty without one."""
        has_system = self.generator in (ROWS_GENERATOR, ENVIRONMENT)
        return str(self.config.get("system", "")) if has_system else ""

    @property
    def is_tagged(self) -> bool:
        """True if the answer is between ``<answer>`` tags."""
        return self.answer_format is AnswerFormat.TAGGED

    @property
    def is_environment(self) -> bool:
        """True if completions are games of several turns (`shoal_tasks.turns`)."""
        return self.generator == ENVIRONMENT

    @property
    def is_of_a_file(self) -> bool:
        """True if only a machine with the family's file can make its tasks."""
        return "sha256" in self.config and self.generator in (ROWS_GENERATOR, ENVIRONMENT)

    @property
    def is_on_a_server(self) -> bool:
        """True if only a machine with access to its OpenEnv server can make its tasks."""
        return self.is_environment and self.verifier == OPENENV

    @property
    def is_local(self) -> bool:
        """True if each node scores by its own judge."""
        return self.verifier == LOCAL

    @property
    def has_python_reward(self) -> bool:
        """True if the user's Python functions score completions."""
        return self.verifier in (PYTHON, LOCAL)

    @property
    def runs_code(self) -> bool:
        """True if completions are programs, scored by unit tests."""
        return self.verifier == TESTS

    @property
    def is_scored_by_group(self) -> bool:
        """True if a completion's reward may depend on the rest of its group."""
        return self.verifier == PYTHON

    @property
    def reward_names(self) -> tuple[tuple[str, str | None], ...]:
        """Names of the reward's functions, each with its file's digest; None for a judge's."""
        names = cast(list[str], self.config["reward_names"])
        digests = cast(list[str | None], self.config.get("reward_sha256s", [None] * len(names)))
        return tuple(zip(names, digests, strict=True))

    @property
    def reward_weights(self) -> list[float]:
        """The weight of each function in the reward, which is the weighted sum."""
        return cast(list[float], self.config["reward_weights"])

    @property
    def runs_user_code(self) -> bool:
        """True if a Python file of the user's, the same on all nodes, scores or plays it."""
        return self.verifier in (PYTHON, ENVIRONMENT)

    @property
    def worker_key(self) -> str:
        """Key of the family's worker process; empty for the process that most families share.

        It names the OpenEnv server's address, the judge's files, the user's files that the worker
        runs, or is `TESTS_WORKER`.
        """
        if self.runs_code:
            return TESTS_WORKER
        if self.runs_user_code:
            # One family's code must not be able to change another's results.
            return f"{self.verifier} {'|'.join(self.reward_paths) or self.path}"
        if self.is_local:
            return "|".join(self.reward_paths)
        return self.path if self.is_on_a_server else ""

    @property
    def max_turns(self) -> int:
        """Maximum messages of one completion; 1 for a single-turn family."""
        turns = self.config["max_turns"] if self.is_environment else 1
        assert isinstance(turns, int)
        return turns

    def share_of(self, earned: float) -> float:
        """Map the result of a function or game to a reward, 0 to 1, by `reward_range`."""
        low, high = cast(list[float], self.config["reward_range"])
        # Results outside the stated range are clipped.
        return min(1.0, max(0.0, (earned - low) / (high - low)))

    def __post_init__(self) -> None:
        object.__setattr__(self, "answer_format", _answer_format(self.answer_format))
        object.__setattr__(self, "reward_paths", tuple(self.reward_paths))
        if not self.name or len(self.name.encode()) > MAX_NAME_BYTES:
            raise FamilyError(f"family name must have 1 to {MAX_NAME_BYTES} bytes")
        if self.generator not in ALLOWED_GENERATORS | {ROWS_GENERATOR, ENVIRONMENT}:
            raise NewerFamilyError(
                f"family {self.name!r}: {self.generator!r} is not a reviewed generator"
            )
        if self.verifier not in _KEYS.get(self.generator, {VERIFIER}):
            raise NewerFamilyError(f"family {self.name!r}: unknown verifier {self.verifier!r}")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise FamilyError(f"family {self.name!r}: weight must be finite and > 0")
        # A deep copy through JSON: later changes of the caller's dict must not reach the spec.
        text = _canonical(self.name, self.config)
        copied = json.loads(text)
        object.__setattr__(self, "config", MappingProxyType(copied))
        object.__setattr__(self, "canonical", text)
        object.__setattr__(self, "digest", digest_of(self.generator, text))
        if self.generator in _KEYS:
            _check_config(self, copied)


def _check_config(spec: FamilySpec, config: Mapping[str, JsonValue]) -> None:
    if spec.verifier == BUILTIN_GAME and config.get("game") not in BUILTIN_GAMES:
        raise NewerFamilyError(f"family {spec.name!r}: unknown game {config.get('game')!r}")
    needed = _KEYS[spec.generator][spec.verifier]
    optional = SERVER_FIELDS if spec.is_on_a_server else frozenset()
    good = needed <= set(config) <= needed | optional | {"system", *ABOUT} and all(
        _IS_GOOD.get(key, _is_text)(value) for key, value in config.items()
    )
    if good and spec.has_python_reward:
        stated = [config[key] for key in config if key in _OF_EACH_FUNCTION]
        good = len({len(cast(list[JsonValue], one)) for one in stated}) == 1
    if good and not spec.is_environment:
        good = config["held_out"] < config["rows"]  # type: ignore[operator]
    if not good and spec.is_environment:
        raise FamilyError(
            f"family {spec.name!r}: an environment needs its class's name, reward_range = "
            f"[least, most] and max_turns from 1 to {MAX_TURNS}"
        )
    if not good:
        raise FamilyError(f"family {spec.name!r}: rows need {', '.join(sorted(needed))}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_seconds(value: object) -> bool:
    return type(value) is int and 1 <= value <= MAX_TEST_SECONDS


def _is_finite(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(cast(float, value))


def _list_of(is_good: Callable[[object], bool]) -> Callable[[object], bool]:
    """Return a check for a list of one or more such values."""
    return lambda value: isinstance(value, list) and bool(value) and all(map(is_good, value))


def _is_turns(value: object) -> bool:
    return type(value) is int and 1 <= value <= MAX_TURNS


def _is_range(bounds: object) -> bool:
    """Return whether a value is two finite numbers, the smaller one first."""
    return (
        isinstance(bounds, list)
        and len(bounds) == 2
        and all(type(end) in (int, float) and math.isfinite(end) for end in bounds)
        and bounds[0] < bounds[1]
    )


_IS_GOOD: Final[Mapping[str, Callable[[object], bool]]] = {
    "sha256": _is_sha256,
    "class": _is_name,
    "reward_names": _list_of(_is_name),
    "reward_sha256s": _list_of(_is_sha256),
    "reward_weights": _list_of(_is_finite),
    **dict.fromkeys(("rows", "held_out"), _is_count),
    "split": lambda value: value in SPLITS,
    "reward_range": _is_range,
    "max_turns": _is_turns,
    "test_seconds": _is_seconds,
}
"""The check of a value, by key; other keys must be texts."""


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
        text = canonical_json(dict(config), allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise FamilyError(f"family {name!r}: config is not JSON: {error}") from None
    if size > MAX_CONFIG_BYTES:
        raise FamilyError(
            f"family {name!r}: its configuration (texts such as description and system, and "
            f"digests) has {size:,} bytes, at most {MAX_CONFIG_BYTES:,}"
        )
    return text


def canonical_json(value: object, *, allow_nan: bool = True) -> str:
    """Serialize a value as JSON with sorted keys and no spaces: equal values give equal text.

    Raises what `json.dumps` does.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=allow_nan
    )


def digest_of(generator: str, canonical: str) -> Digest:
    """Return 16 bytes: truncated SHA-256 of a generator's name, NUL, and a canonical config."""
    return Digest(
        hashlib.sha256(f"{generator}\0{canonical}".encode()).digest()[:SHORT_DIGEST_BYTES]
    )


def spec_to_json(spec: FamilySpec) -> dict[str, JsonValue]:
    """Return the fields with which `FamilySpec(**…)` restores the spec."""
    stated = {one.name: getattr(spec, one.name) for one in fields(spec) if one.init}
    return {**stated, "config": dict(spec.config), "notes": list(spec.notes)}


def environment(
    name: str, verifier: str, config: Mapping[str, JsonValue], *, path: str = "", weight: float = 1
) -> FamilySpec:
    """Return a family of games. Raises `FamilyError`."""
    return FamilySpec(
        name=name,
        generator=ENVIRONMENT,
        config=config,
        weight=weight,
        verifier=verifier,
        verifier_version=VERIFIER_VERSIONS[verifier],
        answer_format=AnswerFormat.PLAIN,
        path=path,
    )
