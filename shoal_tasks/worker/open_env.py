"""Environments on an OpenEnv server in the form of an environment. For the worker process only.

The connection is opened by the first game that needs it and closed when nothing is asked for a
second, since a server may have place for a single session. Each new connection first plays one of
the games by which the environment is known, so a server that was exchanged meanwhile is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shoal_tasks.errors import ServerUnavailable
from shoal_tasks.openenv.address import parse_address
from shoal_tasks.openenv.connection import ServerPlace, Session, away
from shoal_tasks.openenv.forms import NotAnActionError
from shoal_tasks.openenv.identity import (
    NOT_AN_ACTION,
    Description,
    check_same,
    describe,
    play_probe,
)
from shoal_tasks.openenv.messages import EnvironmentRaisedError
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.environment import EnvironmentTasks
from shoal_tasks.worker.generate import GeneratedItem
from shoal_tasks.worker.user_code import UserCodeError


class ServerPlayer:
    """Plays one family on its server, with one session at a time."""

    def __init__(self, spec: FamilySpec, place: ServerPlace) -> None:
        """Ask the server whether it has the family's environment. Call before the sandbox.

        Raises `ServerUnavailable`, `FamilyError`.
        """
        self.place = place
        fields = (str(spec.config.get(key, "")) for key in ("action", "observation"))
        self.description: Description = describe(place, *fields)
        check_same(spec, self.description)
        self._probe = self.description.first_game
        self._session: Session | None = None

    def session(self) -> Session:
        """Return the session that is open, or open one. Raises `ServerUnavailable`."""
        if self._session is not None and self._session.is_open:
            return self._session
        self._session = session = Session(self.place)
        if play_probe(session, self.description.forms, 0, self.place.text) != self._probe:
            session.close()
            raise away(self.place.text, "it has another environment than when this node started")
        return session

    def release(self) -> None:
        """Give the session back to the server."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def new_game(self) -> OpenEnvGame:
        """Return a game that has not begun."""
        return OpenEnvGame(self)


class OpenEnvGame:
    """One game."""

    def __init__(self, player: ServerPlayer) -> None:
        self._player = player
        self._forms = player.description.forms
        self._session = player.session()

    def reset(self, seed: int) -> str:
        """Begin, and return what is seen first. Raises `ServerUnavailable`: never a verdict on a
        task."""
        try:
            seen = self._session.reset(seed)
        except (NotAnActionError, EnvironmentRaisedError) as error:
            raise away(self._player.place.text, f"it cannot be reset: {error}") from None
        return self._forms.observation.text(seen.observation)

    def step(self, message: str) -> tuple[str, float, bool]:
        """Take the action that a message says. Raises `UserCodeError`: the environment raised."""
        try:
            seen = self._session.step(self._forms.action.action(message))
        except NotAnActionError:
            return NOT_AN_ACTION, 0.0, False
        except EnvironmentRaisedError as error:
            raise UserCodeError(f"the environment raised: {error}") from None
        return self._forms.observation.text(seen.observation), seen.reward, seen.done


class ServerTasks(EnvironmentTasks):
    """All games of a family on a server."""

    def item(self, seed: int, index: int) -> GeneratedItem:
        """Return the game of these coordinates.

        Raises `ServerUnavailable` for whatever goes wrong: the sender of a task does not answer for
        it.
        """
        try:
            return super().item(seed, index)
        except UserCodeError as error:
            raise ServerUnavailable(str(error)) from None


def places_of(specs: tuple[FamilySpec, ...]) -> dict[str, ServerPlace]:
    """Look up these families' servers by address. Raises `ServerUnavailable`, `FamilyError`."""
    texts = {spec.path for spec in specs if spec.is_on_a_server}
    return {text: ServerPlace(parse_address(text), text) for text in sorted(texts)}


def socket_addresses(places: Iterable[ServerPlace]) -> frozenset[Any]:
    """Return the addresses that a process with these servers may connect to."""
    return frozenset(where for place in places for _, where in place.sockets)
