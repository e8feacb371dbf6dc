"""Identifies a server's environment by name, version, schemas and the observations of trial games.

Versions are often left at their default ("1.0.0"), so four games are played too, each twice. Two
servers that reply differently are two families, so that no peer takes the other's tasks for forged.
"""

from __future__ import annotations

import contextlib
import functools
import random
from dataclasses import dataclass
from typing import Final

from shoal_tasks.errors import FamilyError, ServerUnavailable
from shoal_tasks.openenv.address import parse_address
from shoal_tasks.openenv.connection import ResolvedServer, Session, get_json, unavailable
from shoal_tasks.openenv.forms import (
    ActionForm,
    NotAnActionError,
    ObservationForm,
    action_form,
    observation_form,
    strip_annotations,
)
from shoal_tasks.openenv.messages import EnvironmentRaisedError, StepResult
from shoal_tasks.rows import file_digest
from shoal_tasks.spec import FamilySpec, JsonValue, canonical_json
from shoal_tasks.turns import PROBED_GAMES, PROBED_TURNS, probe_messages
from shoal_wire.limits import MAX_NAME_BYTES

NOT_AN_ACTION: Final = "This is not an action of the environment."
"""The observation after a message that is not an action. The server's own text differs between
releases."""

_PROBES: Final = ("", "1", "2", "3", "yes", "hello", "[1]", "{}")
"""Messages of these games, in addition to words of the last observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """Conversions between texts and an environment's actions and observations."""

    action: ActionForm
    observation: ObservationForm


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """An environment as its server describes it."""

    config: dict[str, JsonValue]
    """The keys of the family's configuration that identify the environment."""
    forms: Forms
    first_game: list[list[JsonValue]]
    """The replies in the first trial game."""


def forms_of(spec_schema: dict[str, object], action: str, observation: str) -> Forms:
    """Return the conversions for a server's schemas. Raises `FamilyError`."""
    return Forms(
        action=action_form(spec_schema.get("action"), action),
        observation=observation_form(spec_schema.get("observation"), observation),
    )


def describe(place: ResolvedServer, action: str = "", observation: str = "") -> Description:
    """Query a server and play trial games. `action` and `observation` choose fields, if any.

    Raises:
        ServerUnavailable: the server does not respond properly.
        FamilyError: its environment cannot be used, or is not deterministic.
    """
    metadata, schema = get_json(place, "/metadata"), get_json(place, "/schema")
    forms = forms_of(schema, action, observation)
    kept = {
        key: strip_annotations(schema[key]) for key in ("action", "observation") if key in schema
    }
    named = {key: str(metadata.get(key) or "") for key in ("name", "version")}
    if not named["name"] or max(map(len, named.values())) > MAX_NAME_BYTES:
        raise FamilyError(f"the environment at {place.text} has no name, or one that is too long")
    with contextlib.closing(Session(place)) as session:
        games = [play_probe(session, forms, number, place.text) for number in range(PROBED_GAMES)]
        again = [play_probe(session, forms, number, place.text) for number in range(PROBED_GAMES)]
    for one, other in zip(games, again, strict=True):
        _compare(place.text, one, other)
    config: dict[str, JsonValue] = {
        "environment": named["name"],
        "version": named["version"],
        "schema_sha256": _digest(kept),
        "games_sha256": _digest(games),
    }
    if action:
        config["action"] = action
    if observation:
        config["observation"] = observation
    return Description(config=config, forms=forms, first_game=games[0])


def play_probe(session: Session, forms: Forms, number: int, text: str) -> list[list[JsonValue]]:
    """Play one of the games that identify an environment, and return the replies.

    Raises `ServerUnavailable`.
    """
    played: list[list[JsonValue]] = []
    try:
        seen = session.reset(number)
        played.append(_row(forms, seen))
        rng = random.Random(number)
        for message in probe_messages(rng, _PROBES, lambda: str(played[-1][0]), PROBED_TURNS):
            if seen.done:
                break
            try:
                seen = session.step(forms.action.action(message))
                played.append(_row(forms, seen))
            except NotAnActionError:
                played.append([NOT_AN_ACTION, 0.0, False])
            except EnvironmentRaisedError:
                # The error text may contain a time or a memory address.
                played.append(["", 0.0, True])
                break
    except (NotAnActionError, EnvironmentRaisedError) as error:
        raise unavailable(text, f"it cannot be reset: {error}") from None
    return played


def _row(forms: Forms, seen: StepResult) -> list[JsonValue]:
    return [forms.observation.text(seen.observation), seen.reward, seen.done]


def _compare(text: str, one: list[list[JsonValue]], other: list[list[JsonValue]]) -> None:
    for turn, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            where = f"in turn {turn}" if turn else "in the first observation"
            raise FamilyError(
                f"the environment at {text} is not deterministic: two replays differed {where}. "
                "Peers replay every game and must get the same: derive all randomness from the seed"
            )


def _digest(value: object) -> str:
    return file_digest(canonical_json(value).encode(errors="replace"))


_unavailable: dict[str, ServerUnavailable] = {}


def look_up(text: str, action: str = "", observation: str = "") -> Description:
    """Return the description of the server at an address, cached for the process.

    Raises as `describe`.
    """
    if text in _unavailable:
        raise _unavailable[text]
    try:
        return _known(text, action, observation)
    except ServerUnavailable as error:
        raise ServerUnavailable(str(error), text) from None


@functools.cache  # one entry for each server in a task file
def _known(text: str, action: str, observation: str) -> Description:
    return describe(ResolvedServer(parse_address(text), text), action, observation)


def mark_unavailable(error: ServerUnavailable) -> None:
    """Treat a server as unavailable for the rest of this process.

    An event loop that reloads its task files must not wait for it.
    """
    _unavailable[error.worker_key] = error


def check_environment(spec: FamilySpec, found: Description) -> None:
    """Raise `ServerUnavailable` if a server runs another environment than the family's."""
    other = [key for key, value in found.config.items() if spec.config.get(key) != value]
    if other:
        raise unavailable(
            spec.path, f"it runs another environment than the swarm's {spec.name!r} (by {other[0]})"
        )
