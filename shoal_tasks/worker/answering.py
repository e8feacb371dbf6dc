"""Serves requests about a swarm's families, inside the worker process.

Families are built, items generated and completions scored in the sandbox, each within a limit of
processor time. An item that fails gets an error as its result; the other items are not affected.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

from shoal_base.bounded import LINE_CHARS
from shoal_tasks.answers import python_reward
from shoal_tasks.builtin_games import BUILTIN_GAMES
from shoal_tasks.errors import FamilyError, ServerUnavailable, WorkerUnavailable
from shoal_tasks.limits import MAX_QUESTION_CHARS, TIMED_OUT_ERROR, WorkerLimits
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import (
    BUILTIN_GAME,
    MATH_VERIFY,
    ROWS_GENERATOR,
    FamilySpec,
)
from shoal_tasks.swarm import how_to_install, installed_version
from shoal_tasks.types import Play
from shoal_tasks.unit_tests.runner import TestRunner
from shoal_tasks.worker.code_reward import TestsError
from shoal_tasks.worker.environment import EnvironmentTasks, load_game
from shoal_tasks.worker.frames import Message
from shoal_tasks.worker.generate import (
    GeneratedItem,
    RowTasks,
    TaskStream,
)
from shoal_tasks.worker.item_limit import ItemLimit, ItemTimeout
from shoal_tasks.worker.open_env import ServerPlayer, ServerTasks
from shoal_tasks.worker.scoring import score
from shoal_tasks.worker.text_arena import new_text_game
from shoal_tasks.worker.user_code import NondeterministicError, UserCodeError
from shoal_wire.types import FinishReason


class RequestAnswerer:
    """Answers requests about the configured families."""

    def __init__(
        self,
        specs: tuple[FamilySpec, ...],
        limits: WorkerLimits,
        guard: AuditGuard,
        files: dict[str, tuple[bytes, tuple[bytes, ...]]],
        servers: dict[str, ServerPlayer],
        runner: TestRunner | None = None,
    ) -> None:
        """Build all families.

        `files` holds the file contents that each family needs (`serving`), `servers` the players of
        families on a server. `runner` executes unit tests; None without such families.

        Raises:
            FamilyError: the first family that cannot be built.
        """
        self._files = files
        self._servers = servers
        self._guard = guard
        self._runner = runner
        self._limit = ItemLimit(limits.item_cpu_seconds)
        self._streams: dict[str, TaskStream | RowTasks | EnvironmentTasks] = {}
        self._last: tuple[tuple[str, int, int], GeneratedItem] | None = None
        for spec in specs:
            self._streams[spec.name] = self._build(spec)

    def _build(self, spec: FamilySpec) -> TaskStream | RowTasks | EnvironmentTasks:
        installed = installed_version(spec.verifier)
        if spec.verifier_version != installed:
            raise FamilyError(
                f"family {spec.name!r} needs {spec.verifier} {spec.verifier_version}, "
                f"installed is {installed or 'none'}{how_to_install(spec)}"
            )
        try:
            if spec.generator == ROWS_GENERATOR:
                rows, rewards = self._files.pop(spec.name)
                return RowTasks(spec, rows, rewards, self._limit, self._guard, self._runner)
            if spec.is_on_a_server:
                play = self._servers[spec.name].new_game
                return ServerTasks(spec, play, self._limit, self._guard)
            if spec.is_environment:
                return EnvironmentTasks(spec, self._game(spec), self._limit, self._guard)
            with self._limit:
                return TaskStream(spec)
        except (FamilyError, ServerUnavailable):
            raise
        except ItemTimeout:
            why = "building it takes more processor time than one task may use"
        except MemoryError:
            why = "building it takes more memory than the worker may use"
        except Exception as error:  # noqa: BLE001  a library may raise anything
            why = f"{type(error).__name__}: {error}"
        raise FamilyError(f"family {spec.name!r} cannot be built: {why}")

    def _game(self, spec: FamilySpec) -> Callable[[], Any]:
        """Return the factory of a family's games."""
        if spec.is_of_a_file:
            source, _ = self._files.pop(spec.name)
            return load_game(spec, source, self._limit, self._guard)
        game = str(spec.config["game"])
        return BUILTIN_GAMES[game] if spec.verifier == BUILTIN_GAME else new_text_game(game)

    def answer(self, message: Message) -> Message:
        """Return the reply to one request. Raises ValueError or KeyError if it is malformed."""
        operations: dict[str, Callable[[Any], Any]] = {
            "item": self._make_one,
            "score": self._score_one,
            "score_group": self._score_group,
            "play": self._play_one,
        }
        operation, items = operations[str(message["op"])], cast(list[Any], message["items"])
        results: list[Any] = list(map(operation, items))
        return {"ok": True, "results": results, "cpu_seconds": time.process_time()}

    @property
    def notes(self) -> list[str]:
        """Lines for the families' authors."""
        rows = [stream for stream in self._streams.values() if isinstance(stream, RowTasks)]
        return [note for stream in rows for note in stream.notes]

    def release_idle(self) -> None:
        """Release server sessions while the worker is idle."""
        for player in self._servers.values():
            player.release()

    def _item(self, wanted: dict[str, Any]) -> GeneratedItem:
        """Return the item of one request. A group's requests are consecutive: cache one."""
        key = (str(wanted["family"]), int(wanted["seed"]), int(wanted["index"]))
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        item = self._streams[key[0]].item(key[1], key[2])
        self._last = (key, item)
        return item

    def _make_one(self, wanted: dict[str, Any]) -> Message:
        try:
            with self._limit:
                item = self._item(wanted)
                if len(item.question) > MAX_QUESTION_CHARS:
                    return {"error": "question too long"}
                return item.row()
        except ItemTimeout:
            return {"error": TIMED_OUT_ERROR}
        except ServerUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  generators raise anything on an unlucky seed
            return {"error": f"{type(error).__name__}: {error}"[:LINE_CHARS]}

    def _score_one(self, wanted: dict[str, Any]) -> Message:
        reward = 0.0
        try:
            with self._limit:
                reward = self._reward(wanted)
        except ItemTimeout:
            pass
        except MemoryError:
            self._exit_if_game(wanted)
        except WorkerUnavailable:
            os._exit(1)  # the fork server has ended, and only a new worker can start one
        except TestsError as error:
            return {"reward": 0.0, "error": str(error), "timed_out": error.timed_out}
        except NondeterministicError as error:
            return {"nondeterministic": str(error)}
        except UserCodeError as error:
            return {"reward": 0.0, "error": str(error)}
        except ServerUnavailable:
            raise
        except Exception:  # noqa: BLE001  an item that cannot be generated has no correct answer
            pass
        finally:
            self._guard.scoring = False
        # Some scorers swallow every exception, `ItemTimeout` too, so check the limit's own flag.
        if self._limit.expired:
            self._last = None
            return {"reward": 0.0, "timed_out": True}
        return {"reward": reward}

    def _score_group(self, wanted: dict[str, Any]) -> Message | list[Message]:
        """Return one score per completion. An error gives the whole group 0, with the reason."""
        stream = self._streams[str(wanted["family"])]
        assert isinstance(stream, RowTasks)
        texts = [str(text) for text, _ in wanted["answers"]]
        ends = [FinishReason(finish_reason) for _, finish_reason in wanted["answers"]]
        failed: Message = {"reward": 0.0}
        earned = None
        try:
            with self._limit.of(len(texts)):
                earned = stream.score(int(wanted["seed"]), int(wanted["index"]), texts)
        except ItemTimeout:
            pass
        except NondeterministicError as error:
            return {"nondeterministic": str(error)}
        except UserCodeError as error:
            failed["error"] = str(error)
        except MemoryError:
            failed["error"] = "the reward uses more memory than the worker may"
        # The function may swallow every exception, `ItemTimeout` too, so check the limit's own
        # flag.
        if self._limit.expired:
            failed = {"reward": 0.0, "timed_out": True}
        if self._limit.expired or earned is None:
            return [failed] * len(texts)
        rewards = map(python_reward, earned.shares, ends)
        return [
            {"reward": reward, "note": note}
            for reward, note in zip(rewards, earned.notes, strict=True)
        ]

    def _reward(self, wanted: dict[str, Any]) -> float:
        stream = self._streams[str(wanted["family"])]
        text, finish_reason = str(wanted["text"]), FinishReason(wanted["finish_reason"])
        if isinstance(stream, EnvironmentTasks):
            return stream.score(int(wanted["seed"]), int(wanted["index"]), text, finish_reason)
        item = self._item(wanted)
        self._guard.numbers_only = stream.spec.verifier == MATH_VERIFY
        self._guard.scoring = True
        return score(stream.spec, item, text, finish_reason)

    def _play_one(self, wanted: dict[str, Any]) -> Message:
        stream = self._streams[str(wanted["family"])]
        if not isinstance(stream, EnvironmentTasks):
            return asdict(Play.over(f"family {stream.spec.name!r} does not answer back"))
        play = Play.over(TIMED_OUT_ERROR)
        try:
            with self._limit:
                messages = [str(one) for one in wanted["messages"]]
                play = stream.play(int(wanted["seed"]), int(wanted["index"]), messages)
        except ItemTimeout:
            pass
        except MemoryError:
            self._exit_if_game(wanted)
        return asdict(Play.over(TIMED_OUT_ERROR) if self._limit.expired else play)

    def _exit_if_game(self, wanted: dict[str, Any]) -> None:
        """End the process if a game ran out of memory: the client retries with a new worker.

        Earlier games may have filled the memory, which must not lower this completion's reward.
        """
        if self._streams[str(wanted["family"])].spec.is_environment:
            os._exit(1)
