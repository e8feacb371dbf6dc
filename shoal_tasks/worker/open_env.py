"""Adapts OpenEnv servers to the interface of environments. For the worker process only.

The first game opens the connection. It is closed after a second without requests, because a server
may allow only one session. Each new connection first replays one of the games that identify the
environment, so that a replaced server is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shoal_tasks.errors import ServerUnavailable
from shoal_tasks.openenv.address import parse_address
from shoal_tasks.openenv.connection import ResolvedServer, Session, unavailable
from shoal_tasks.openenv.forms import NotAnActionError
from shoal_tasks.openenv.identity import (
    NOT_AN_ACTION,
    Description,
    check_environment,
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

    def __init__(self, spec: FamilySpec, place: ResolvedServer) -> None:
        """Check that the server runs the family's environment. Call before entering the sandbox.

        Raises `ServerUnavailable`, `FamilyError`.
        """
        self.place = place
        fields = (str(spec.config.get(key, "")) for key in ("action", "observation"))
        self.description: Description = describe(place, *fields)
        check_environment(spec, self.description)
        self._probe = self.description.first_game
        self._session: Session | None = None

    def session(self) -> Session:
        """Return the open session, or open one. Raises `ServerUnavailable`."""
        if self._session is not None and self._session.is_open:
            return self._session
        self._session = session = Session(self.place)
        if play_probe(session, self.description.forms, 0, self.place.text) != self._probe:
            session.close()
            raise unavailable(
                self.place.text, "it runs another environment than when this node started"
            )
        return session

    def release(self) -> None:
        """Close the session on the server."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def new_game(self) -> OpenEnvGame:
        """Return a new game."""
        return OpenEnvGame(self)


class OpenEnvGame:
    """One game on a server."""

    def __init__(self, player: ServerPlayer) -> None:
        self._player = player
        self._forms = player.description.forms
        self._session = player.session()

    def reset(self, seed: int) -> str:
        """Begin, and return the first observation.

        Raises `ServerUnavailable`: a server that fails is never a verdict on a task.
        """
        try:
            seen = self._session.reset(seed)
        except (NotAnActionError, EnvironmentRaisedError) as error:
            raise unavailable(self._player.place.text, f"it cannot be reset: {error}") from None
        return self._forms.observation.text(seen.observation)

    def step(self, message: str) -> tuple[str, float, bool]:
        """Send the action in a message. Raises `UserCodeError`: the environment raised."""
        try:
            seen = self._session.step(self._forms.action.action(message))
        except NotAnActionError:
            return NOT_AN_ACTION, 0.0, False
        except EnvironmentRaisedError as error:
            raise UserCodeError(f"the environment raised: {error}") from None
        return self._forms.observation.text(seen.observation), seen.reward, seen.done


class ServerTasks(EnvironmentTasks):
    """The games of a family on a server."""

    def item(self, seed: int, index: int) -> GeneratedItem:
        """Return the game of these coordinates.

        Raises `ServerUnavailable` for every error: the sender of the task is not responsible for
        it.
        """
        try:
            return super().item(seed, index)
        except UserCodeError as error:
            raise ServerUnavailable(str(error)) from None


def resolve_servers(specs: tuple[FamilySpec, ...]) -> dict[str, ResolvedServer]:
    """Resolve these families' server addresses. Raises `ServerUnavailable`, `FamilyError`."""
    texts = {spec.path for spec in specs if spec.is_on_a_server}
    return {text: ResolvedServer(parse_address(text), text) for text in sorted(texts)}


def socket_addresses(places: Iterable[ResolvedServer]) -> frozenset[Any]:
    """Return the socket addresses that a worker with these servers may connect to."""
    return frozenset(where for place in places for _, where in place.sockets)
