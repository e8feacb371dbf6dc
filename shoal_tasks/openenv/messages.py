"""OpenEnv's messages: JSON in the text frames of a WebSocket. Pure.

    we send {"type": "reset", "data": {"seed": …, "episode_id": …}}
    or {"type": "step", "data": ACTION}
the server answers {"type": "observation", "data": {"observation": {…}, "reward": …, "done": …}}
or {"type": "error", "data": {"message": …, "code": …}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal_base.bounded import LINE_CHARS
from shoal_tasks.openenv.forms import NotAnActionError

NO_PLACE: Final = "CAPACITY_REACHED"
"""The code with which a server says that all its sessions are taken."""
_NOT_AN_ACTION: Final = "VALIDATION_ERROR"
_ENVIRONMENT_FAILED: Final = "EXECUTION_ERROR"


class OpenEnvError(Exception):
    """Bytes that are not OpenEnv's wire, or an error of the server's own; one line."""


class SessionLimitError(Exception):
    """All sessions of the server are taken."""


class EnvironmentRaisedError(Exception):
    """The environment's own code raised; the text is what the server says of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One answer of an environment."""

    observation: Mapping[str, Any]
    reward: float
    done: bool


def reset_message(seed: int) -> str:
    """Return the message that begins an episode. Its name follows from the seed, too."""
    return _encode("reset", {"seed": seed, "episode_id": f"shoal-{seed}"})


def step_message(action: Mapping[str, Any]) -> str:
    """Return the message that takes an action."""
    return _encode("step", action)


def read_answer(text: str) -> Observed:
    """Read the answer to either.

    Raises `NotAnActionError`, `EnvironmentRaisedError`, `SessionLimitError`; `OpenEnvError` else.
    """
    answer = read_json(text)
    kind, data = answer.get("type"), answer.get("data")
    if not isinstance(data, dict):
        raise OpenEnvError("an answer without data")
    if kind == "error":
        _raise(data)
    if kind != "observation":
        raise OpenEnvError(f"an answer of type {str(kind)[:40]!r}")
    observation = data.get("observation")
    reward = data.get("reward")
    if not isinstance(observation, dict):
        raise OpenEnvError("an observation that is no object")
    # A boolean is a number here, as OpenEnv has it; None where a step earns nothing.
    number = 0.0 if reward is None else reward
    if not isinstance(number, int | float) or abs(number) > 1e300 or not math.isfinite(number):
        raise OpenEnvError("a reward that is no number")
    if not isinstance(data.get("done", False), bool):
        raise OpenEnvError("an end that is neither true nor false")
    return Observed(
        observation=observation, reward=float(number), done=bool(data.get("done", False))
    )


def read_json(text: str | bytes) -> dict[str, Any]:
    """Read one JSON object. Raises `OpenEnvError`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise OpenEnvError("an answer that is not JSON") from None
    if not isinstance(value, dict):
        raise OpenEnvError("an answer that is no JSON object")
    return value


def _encode(kind: str, data: Mapping[str, Any]) -> str:
    try:
        return json.dumps({"type": kind, "data": data}, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        # Such as 1e999, which JSON reads as infinite.
        raise NotAnActionError from None


def _line(value: object, most: int) -> str:
    """Return what a server says as one line that a terminal can show."""
    text = "".join(one if one.isprintable() else " " for one in str(value)[:most])
    return " ".join(text.split())


def _raise(data: Mapping[str, Any]) -> None:
    code, said = _line(data.get("code"), 40), _line(data.get("message"), LINE_CHARS)
    if code == _NOT_AN_ACTION:
        raise NotAnActionError
    if code == NO_PLACE:
        raise SessionLimitError
    if code == _ENVIRONMENT_FAILED:
        raise EnvironmentRaisedError(said)
    raise OpenEnvError(f"{code}: {said}")
