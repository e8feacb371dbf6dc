"""Identifies a server's environment: name, version, schemas, and the course of its games.

Versions are often left as they were made ("1.0.0"), so four games are played as well, and each of
them twice: two servers that answer them differently are two families, and none of two peers takes
the other's tasks for forged.
"""

from __future__ import annotations

import contextlib
import functools
import random
from dataclasses import dataclass
from typing import Final

from shoal_tasks.errors import FamilyError, ServerUnavailable
from shoal_tasks.openenv.address import parse_address
from shoal_tasks.openenv.connection import ServerPlace, Session, away, get_json
from shoal_tasks.openenv.forms import (
    ActionForm,
    NotAnActionError,
    ObservationForm,
    action_form,
    observation_form,
    stated,
)
from shoal_tasks.openenv.messages import EnvironmentRaisedError, Observed
from shoal_tasks.rows import file_digest
from shoal_tasks.spec import FamilySpec, JsonValue, canonical_json
from shoal_tasks.turns import PROBED_GAMES, PROBED_TURNS, improvised
from shoal_wire.limits import MAX_NAME_BYTES

NOT_AN_ACTION: Final = "This is not an action of the environment."
"""The observation after a message that is no action. The server's own words differ between
releases."""

_TRIED: Final = ("", "1", "2", "3", "yes", "hello", "[1]", "{}")
"""Messages played in these games, beside words that the environment has just used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """Conversions between texts and an environment's actions and observations."""

    action: ActionForm
    observation: ObservationForm


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """An environment as its server presents it."""

    config: dict[str, JsonValue]
    """The keys of the family's configuration that say which environment it is."""
    forms: Forms
    first_game: list[list[JsonValue]]
    """The first of the games that were played: what it answered."""


def forms_of(spec_schema: dict[str, object], action: str, observation: str) -> Forms:
    """Return the forms of a server's schemas. Raises `FamilyError`."""
    return Forms(
        action=action_form(spec_schema.get("action"), action),
        observation=observation_form(spec_schema.get("observation"), observation),
    )


def describe(place: ServerPlace, action: str = "", observation: str = "") -> Description:
    """Ask a server what it has, and play it. `action` and `observation` name fields, if any.

    Raises `ServerUnavailable`; `FamilyError`: its environment cannot be used, or does not repeat
    itself.
    """
    metadata, schema = get_json(place, "/metadata"), get_json(place, "/schema")
    forms = forms_of(schema, action, observation)
    kept = {key: stated(schema[key]) for key in ("action", "observation") if key in schema}
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
    """Play one of the games by which an environment is known; return what it answered.

    Raises `ServerUnavailable`.
    """
    played: list[list[JsonValue]] = []
    try:
        seen = session.reset(number)
        played.append(_row(forms, seen))
        chance = random.Random(number)
        for message in improvised(chance, _TRIED, lambda: str(played[-1][0]), PROBED_TURNS):
            if seen.done:
                break
            try:
                seen = session.step(forms.action.action(message))
                played.append(_row(forms, seen))
            except NotAnActionError:
                played.append([NOT_AN_ACTION, 0.0, False])
            except EnvironmentRaisedError:
                # What it says of itself may hold a time or a place in memory.
                played.append(["", 0.0, True])
                break
    except (NotAnActionError, EnvironmentRaisedError) as error:
        raise away(text, f"it cannot be reset: {error}") from None
    return played


def _row(forms: Forms, seen: Observed) -> list[JsonValue]:
    return [forms.observation.text(seen.observation), seen.reward, seen.done]


def _compare(text: str, one: list[list[JsonValue]], other: list[list[JsonValue]]) -> None:
    for turn, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            where = f"in turn {turn}" if turn else "in what is seen first"
            raise FamilyError(
                f"the environment at {text} does not repeat itself: it differed {where}. Peers "
                "replay every game and must see the same: it has to draw all chance from its seed"
            )


def _digest(value: object) -> str:
    return file_digest(canonical_json(value).encode(errors="replace"))


_away: dict[str, ServerUnavailable] = {}


def look_up(text: str, action: str = "", observation: str = "") -> Description:
    """Return what the server at an address has. It is asked once in a process.

    Raises as `describe`.
    """
    if text in _away:
        raise _away[text]
    try:
        return _known(text, action, observation)
    except ServerUnavailable as error:
        raise ServerUnavailable(str(error), text) from None


@functools.cache  # as many as task files name
def _known(text: str, action: str, observation: str) -> Description:
    return describe(ServerPlace(parse_address(text), text), action, observation)


def stop_asking(error: ServerUnavailable) -> None:
    """Take a server to be away for as long as this process lives: an event loop, which asks again
    for the families of its task files, must not wait for it."""
    _away[error.lane] = error


def check_same(spec: FamilySpec, found: Description) -> None:
    """Raise `ServerUnavailable` where a server has another environment than the family's."""
    other = [key for key, value in found.config.items() if spec.config.get(key) != value]
    if other:
        raise away(
            spec.path, f"it is another environment than the swarm's {spec.name!r} (by {other[0]})"
        )
