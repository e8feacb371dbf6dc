"""OpenEnv's messages: JSON in text frames of a WebSocket. Pure.

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

CAPACITY_REACHED: Final = "CAPACITY_REACHED"
"""The error code of a server whose sessions are all in use."""
_NOT_AN_ACTION: Final = "VALIDATION_ERROR"
_ENVIRONMENT_FAILED: Final = "EXECUTION_ERROR"


class OpenEnvError(Exception):
    """Bytes that are not OpenEnv's protocol, or an error of the server itself; one line."""


class SessionLimitError(Exception):
    """All sessions of the server are in use."""


class EnvironmentRaisedError(Exception):
    """The environment's own code raised; the text is the server's error message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One reply of an environment."""

    observation: Mapping[str, Any]
    reward: float
    done: bool


def reset_message(seed: int) -> str:
    """Return the message that begins an episode. The episode id follows from the seed."""
    return _encode("reset", {"seed": seed, "episode_id": f"shoal-{seed}"})


def step_message(action: Mapping[str, Any]) -> str:
    """Return the message that takes an action."""
    return _encode("step", action)


def parse_reply(text: str) -> StepResult:
    """Parse the reply to either message.

    Raises `NotAnActionError`, `EnvironmentRaisedError`, `SessionLimitError`; otherwise
    `OpenEnvError`.
    """
    answer = read_json(text)
    kind, data = answer.get("type"), answer.get("data")
    if not isinstance(data, dict):
        raise OpenEnvError("a reply without data")
    if kind == "error":
        _raise(data)
    if kind != "observation":
        raise OpenEnvError(f"a reply of type {str(kind)[:40]!r}")
    observation = data.get("observation")
    reward = data.get("reward")
    if not isinstance(observation, dict):
        raise OpenEnvError("an observation that is not an object")
    # OpenEnv allows a boolean reward, and None for a step without a reward.
    number = 0.0 if reward is None else reward
    if not isinstance(number, int | float) or abs(number) > 1e300 or not math.isfinite(number):
        raise OpenEnvError("a reward that is not a finite number")
    if not isinstance(data.get("done", False), bool):
        raise OpenEnvError("`done` is neither true nor false")
    return StepResult(
        observation=observation, reward=float(number), done=bool(data.get("done", False))
    )


def read_json(text: str | bytes) -> dict[str, Any]:
    """Parse one JSON object. Raises `OpenEnvError`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise OpenEnvError("a reply that is not JSON") from None
    if not isinstance(value, dict):
        raise OpenEnvError("a reply that is not a JSON object")
    return value


def _encode(kind: str, data: Mapping[str, Any]) -> str:
    try:
        return json.dumps({"type": kind, "data": data}, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        # Such as 1e999, which JSON parses as infinity.
        raise NotAnActionError from None


def _line(value: object, most: int) -> str:
    """Return a server's text as one printable line."""
    text = "".join(one if one.isprintable() else " " for one in str(value)[:most])
    return " ".join(text.split())


def _raise(data: Mapping[str, Any]) -> None:
    code, text = _line(data.get("code"), 40), _line(data.get("message"), LINE_CHARS)
    if code == _NOT_AN_ACTION:
        raise NotAnActionError
    if code == CAPACITY_REACHED:
        raise SessionLimitError
    if code == _ENVIRONMENT_FAILED:
        raise EnvironmentRaisedError(text)
    raise OpenEnvError(f"{code}: {text}")
