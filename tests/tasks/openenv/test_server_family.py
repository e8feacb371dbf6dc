"""Families with an environment on an OpenEnv server: played, scored by replay, and skipped."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio

from shoal_tasks.errors import FamilyError, ServerUnavailable, WorkerUnavailable
from shoal_tasks.families import EASY, GAMES_1, TRAIN_SEED_MIN, coordinates
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.openenv import identity
from shoal_tasks.openenv.address import parse_address
from shoal_tasks.openenv.connection import ResolvedServer
from shoal_tasks.openenv.identity import NOT_AN_ACTION, describe
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import specs_of, starting_families
from shoal_tasks.task_file import load_task_file
from shoal_tasks.turns import join_messages
from shoal_tasks.types import PlayRequest, ScoreRequest, Split
from shoal_tasks.worker.availability import RETRY_AFTER_S
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_tasks.worker.trio_client import TrioTaskWorker as TrioWorker
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import make_manifest
from shoal_wire.types import FinishReason
from tests.support.nodes import until
from tests.support.task_files import score_of, task_file
from tests.tasks.here import HereWorker
from tests.tasks.openenv.servers import Guess, Wire, seen, served

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH
SEED = TRAIN_SEED_MIN


def family(folder: Path, address: str, **fields: object) -> FamilySpec:
    return load_task_file(task_file(folder, "guess", environment=address, **fields))


def ask(spec: FamilySpec, *messages: str) -> PlayRequest:
    return PlayRequest(task=coordinates(spec, SEED), messages=messages)


def completion(spec: FamilySpec, *messages: str, finish: FinishReason = STOP) -> ScoreRequest:
    return score_of(coordinates(spec, SEED), join_messages(messages), finish)


def won(worker: SyncTaskWorker, spec: FamilySpec) -> str:
    """The message that wins the game of `SEED`."""
    plays = worker.play([ask(spec, str(number)) for number in range(1, 7)])
    return str(1 + [play.done for play in plays].index(True))


def test_a_game_is_played_and_scored_by_replay(tmp_path: Path) -> None:
    with served(Wire()) as address:
        spec = family(tmp_path, address)
        with HereWorker([*GAMES_1, spec]) as worker:
            assert worker.questions([coordinates(spec, SEED)]) == ["Guess a number from 1 to 6."]
            right = won(worker, spec)
            (play,) = worker.play([ask(spec, "no", right)])
            assert (play.observations, play.done, play.reward) == (("Wrong.", "Right!"), True, 1.0)
            scored = worker.score(
                [
                    completion(spec, right),
                    completion(spec, "no", finish=LENGTH),
                    completion(spec, "no"),
                    completion(spec, right, "1"),
                ]
            )
            assert [one.reward for one in scored] == pytest.approx([1.0, 0.1, 0.0, 0.0])
            drawn = worker.draw(random.Random(1), 20)
            assert {task.family for task, _ in drawn} == {"guess", GAMES_1[0].name}


def test_the_nodes_first_question_finds_the_servers_worker_up(tmp_path: Path) -> None:
    """Its start would count to a batch's cost, which is charged to the publisher."""

    async def main() -> None:
        worker = TrioWorker([*GAMES_1, spec])
        async with trio.open_nursery() as nursery:
            await nursery.start(worker.run)
            talk = worker._queues[spec.worker_key].session
            assert talk.report is not None
            # Nor is a batch charged for another start, once the server is available.
            await talk.stop()
            with pytest.raises(WorkerUnavailable, match="its worker is starting"):
                await worker.question_digests([coordinates(spec, SEED)])
            await until(lambda: not talk.needs_a_start)
            assert await worker.question_digests([coordinates(spec, SEED)])
            assert talk.num_restarts == 1
            nursery.cancel_scope.cancel()

    with served(Wire()) as address:
        spec = family(tmp_path, address)
        trio.run(main)


def test_a_server_that_is_away_does_not_hold_up_a_nodes_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        worker = TrioWorker([*GAMES_1, spec])
        async with trio.open_nursery() as nursery:
            await nursery.start(worker.run)
            with pytest.raises(ServerUnavailable, match="Connection refused"):
                await worker.question_digests([coordinates(spec, SEED)])
            assert await worker.question_digests([coordinates(GAMES_1[0], SEED)])
            nursery.cancel_scope.cancel()

    with served(Wire()) as address:
        spec = family(tmp_path, address)
    trio.run(main)
    assert len(caplog.records) == 1, caplog.text


def test_a_family_is_its_environment_not_its_address(tmp_path: Path) -> None:
    class Other(Guess):
        def step(self, action: dict[str, object]) -> dict[str, object]:
            return super().step(action) if self.left > 4 else seen("Hm.", 0.1)

    def digest(wire: Wire, **fields: object) -> bytes:
        with served(wire) as address:
            return family(tmp_path, address, **fields).digest

    one = digest(Wire())
    assert digest(Wire()) == one
    named = {"name": "Guess", "version": "1.0.0"}
    assert digest(Wire(metadata={**named, "description": "other words"})) == one
    others = [
        digest(Wire(metadata={**named, "version": "1.0.1"})),
        digest(Wire(metadata={**named, "name": "Guess2"})),
        digest(Wire(game=Other)),
        digest(Wire(), max_turns=3),
        digest(Wire(), observation="text"),
    ]
    assert len({one, *others}) == 6


def test_a_swarm_finds_it_where_the_server_is(tmp_path: Path) -> None:
    with served(Wire()) as address:
        files = [str(task_file(tmp_path, "guess", environment=address))]
        manifest = make_manifest("mine", starting_families("easy", files))
        alone = make_manifest("mine", starting_families("none", files))
        assert specs_of(manifest, files)[-1].path == address
    assert len(specs_of(manifest)) == len(EASY)
    with pytest.raises(ManifestError, match=r"needs the OpenEnv server of 'guess' \(--tasks\)"):
        specs_of(alone)
    # Another machine, with an unavailable or different server, uses the other families.
    with served(Wire(metadata={"name": "Guess", "version": "2"})) as address:
        assert len(
            specs_of(manifest, [str(task_file(tmp_path, "guess", environment=address))])
        ) == len(EASY)
    files = [str(task_file(tmp_path, "guess", environment="ws://127.0.0.1:9"))]
    with pytest.raises(
        ManifestError, match=r"'guess' at ws://127\.0\.0\.1:9, which does not answer"
    ):
        specs_of(alone, files)
    with pytest.raises(
        ManifestError, match=r"ws://127\.0\.0\.1:9 cannot be used: Connection refused"
    ):
        starting_families("easy", files)


def test_an_environment_that_does_not_repeat_itself_is_refused_with_its_turn(
    tmp_path: Path,
) -> None:
    class Moody(Guess):
        def step(self, action: dict[str, object]) -> dict[str, object]:
            answer = super().step(action)
            return answer if self.left == 5 else seen(str(random.random()))

    with (
        served(Wire(game=Moody)) as address,
        pytest.raises(
            FamilyError, match="is not deterministic: two replays differed in turn 2"
        ) as caught,
    ):
        family(tmp_path, address)
    assert "\n" not in str(caught.value)


def test_a_server_that_goes_costs_only_its_family(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served(Wire()) as address:
        spec = family(tmp_path, address)
        worker = SyncTaskWorker([*GAMES_1, spec])
        with worker:
            assert worker.play([ask(spec, "x")])[0].observations == ("Wrong.",)
    with worker:
        drawn = worker.draw(random.Random(1), 20)
        assert {task.family for task, _ in drawn} == {GAMES_1[0].name}
        assert {at.family for at, _ in worker.held_out(4)} == {GAMES_1[0].name}
        assert worker.parts([coordinates(spec, SEED)]) == [Split.UNAVAILABLE]
        (play,) = worker.play([ask(spec, "x")])
        assert play.done and play.reward == 0.0 and "Connection refused" in play.error
        (score,) = worker.score([completion(spec, "x", finish=LENGTH)])
        assert score.reward == 0.0 and "Connection refused" in score.error
        with pytest.raises(WorkerUnavailable, match="Connection refused"):
            worker.question_digests([coordinates(spec, SEED)])
    assert [record.getMessage() for record in caplog.records] == [
        f"guess: skipped, its server is unavailable: the OpenEnv server at {address} cannot be "
        "used: Connection refused"
    ]


def test_a_server_that_comes_back_is_used_again_unless_it_is_another(tmp_path: Path) -> None:
    wire = Wire()
    with served(wire) as address:
        spec = family(tmp_path, address)
    port = int(address.rpartition(":")[2])
    with served(Wire(metadata={"name": "Guess", "version": "2"}), port), SyncTaskWorker(GAMES_1):
        pass
    with (
        served(Wire(metadata={"name": "Guess", "version": "2"}), port),
        pytest.raises(
            ServerUnavailable, match=r"another environment than the swarm's 'guess' \(by version"
        ),
        SyncTaskWorker([spec]),
    ):
        pass
    with served(wire, port), SyncTaskWorker([spec]) as worker:
        assert worker.play([ask(spec, "x")])[0].observations == ("Wrong.",)


def test_a_server_that_was_lost_is_taken_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire()
    with served(wire) as address:
        spec = family(tmp_path, address)
        worker = SyncTaskWorker([*GAMES_1, spec])
        with Clocked(worker, spec) as clock:
            assert worker.play([ask(spec, "x")])[0].observations == ("Wrong.",)
    port = int(address.rpartition(":")[2])
    with Clocked(worker, spec) as clock:
        assert "Connection refused" in worker.play([ask(spec, "x")])[0].error
        with served(wire, port):
            # Not retried before its time, then used again; its family is sampled once more.
            clock.now += RETRY_AFTER_S - 1
            assert worker.play([ask(spec, "x")])[0].error
            clock.now += 2
            assert worker.play([ask(spec, "x")])[0].observations == ("Wrong.",)
            drawn = worker.draw(random.Random(1), 20)
            assert {task.family for task, _ in drawn} == {"guess", GAMES_1[0].name}
    assert [one.getMessage() for one in caplog.records][
        -1
    ] == "guess: its server is available again"


@pytest.mark.parametrize("is_the_swarms", [True, False])
def test_a_server_that_is_down_at_the_start_is_tried_again(
    tmp_path: Path, is_the_swarms: bool
) -> None:
    wire = Wire()
    with served(wire) as address:
        files = [str(task_file(tmp_path, "guess", environment=address))]
        manifest = make_manifest("mine", starting_families("easy", files))
    identity._known.cache_clear()  # another process, which starts while the server is down
    spec = specs_of(manifest, files)[-1]
    assert (spec.name, spec.path) == ("guess", address)
    worker = SyncTaskWorker([*GAMES_1, spec])
    port = int(address.rpartition(":")[2])
    found = wire if is_the_swarms else Wire(metadata={"name": "Guess", "version": "2"})
    with Clocked(worker, spec) as clock:
        assert {task.family for task, _ in worker.draw(random.Random(1), 9)} == {GAMES_1[0].name}
        with served(found, port):
            clock.now += RETRY_AFTER_S + 1
            (play,) = worker.play([ask(spec, "x")])
            assert (play.observations == ("Wrong.",)) is is_the_swarms, play
            assert ("another environment" in play.error) is not is_the_swarms, play


class Clocked:
    """A worker in use, with a test's clock for its server session."""

    def __init__(self, worker: SyncTaskWorker, spec: FamilySpec) -> None:
        self.now = 1e6
        self._worker = worker
        worker._sessions[spec.worker_key].pipes.now = lambda: self.now  # type: ignore[method-assign]

    def __enter__(self) -> Clocked:
        self._worker.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._worker.close()


def test_a_server_that_hangs_is_given_up_in_time(tmp_path: Path) -> None:
    hangs: list[bool] = []
    wire = Wire(bend=lambda _request, answer: None if hangs else answer)
    limits = WorkerLimits(request_timeout_seconds=1.0)
    with served(wire) as address:
        spec = family(tmp_path, address)
        with SyncTaskWorker([*GAMES_1, spec], limits=limits) as worker:
            assert worker.play([ask(spec, "x")])[0].error == ""
            hangs.append(True)
            (play,) = worker.play([ask(spec, "x")])
            assert play.error == "its games take too long, or its worker ended"
            assert worker.questions([coordinates(GAMES_1[0], SEED)])


@pytest.mark.slow
def test_a_server_with_one_place_serves_several_in_turn(tmp_path: Path) -> None:
    wire = Wire(max_sessions=1)
    with served(wire) as address:
        spec = family(tmp_path, address)
        with SyncTaskWorker([spec]) as one, SyncTaskWorker([spec]) as other:
            for _ in range(2):
                for worker in (one, other):
                    assert worker.play([ask(spec, "x")])[0].observations == ("Wrong.",)


def test_messages_that_are_no_action_are_answered_alike_everywhere(tmp_path: Path) -> None:
    schema = {
        "action": {
            "properties": {"row": {"type": "integer"}, "column": {"type": "integer"}},
            "required": ["row", "column"],
        },
        "observation": {"properties": {"board": {"type": "array"}, "left": {"type": "integer"}}},
    }

    class Board(Guess):
        def reset(self, seed: int) -> dict[str, object]:
            return self._seen(9)

        def _seen(self, left: int) -> dict[str, object]:
            observation = {"left": left, "board": [1, 2], "metadata": {"x": 1}}
            return {"type": "observation", "data": {"observation": observation, "done": False}}

    with served(Wire(game=Board, schema=schema)) as address:
        spec = family(tmp_path, address)
        with HereWorker([spec]) as worker:
            assert worker.questions([coordinates(spec, SEED)]) == ['{"board":[1,2],"left":9}']
            (play,) = worker.play([ask(spec, "up", '{"row": 1}', "[1]", '{"row": 1e999}')])
            assert play.observations == (NOT_AN_ACTION,) * 4 and not play.done


def test_what_the_environment_raises_costs_the_game_alone(tmp_path: Path) -> None:
    class Raises(Guess):
        def step(self, action: dict[str, object]) -> dict[str, object]:
            if action["message"] == "raise":
                raise ValueError("no such move")
            return super().step(action)

    with served(Wire(game=Raises)) as address:
        spec = family(tmp_path, address)
        with HereWorker([spec]) as worker:
            bad, good = worker.score(
                [completion(spec, "raise"), completion(spec, "no", finish=LENGTH)]
            )
            assert (bad.reward, bad.error) == (0.0, "the environment raised: no such move")
            assert good.reward == pytest.approx(0.1)


def test_a_worker_of_a_server_may_connect_to_nothing_else(tmp_path: Path) -> None:
    with served(Wire()) as address:
        spec = family(tmp_path, address)
        with SyncTaskWorker([spec]) as worker:
            assert worker.report is not None
            layers = {layer.name: layer for layer in worker.report.layers}
    assert layers["network"].detail == "it connects to its own server"
    assert {name for name, layer in layers.items() if not layer.active} <= {"network", "user"}
    guard = AuditGuard(frozenset({("127.0.0.1", 8000)}))
    for event, args, refused in (
        ("socket.connect", (None, ("127.0.0.1", 8000)), False),
        ("socket.connect", (None, ("127.0.0.1", 8001)), True),
        ("socket.connect", (None, "/run/docker.sock"), True),
        ("socket.bind", (None, ("127.0.0.1", 8000)), True),
        ("socket.getaddrinfo", ("host", 80, 0, 0, 0), True),
    ):
        assert (guard.refusal(event, args) is not None) == refused
    assert AuditGuard().refusal("socket.connect", (None, ("127.0.0.1", 8000)))


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"address": "ws://a b"}, "is not the address of an OpenEnv server"),
        ({"class": "Game"}, "class needs a Python file"),
        ({"action": "move"}, "the action has no field 'move'; its fields are 'message'"),
        ({"observation": "board"}, "the observation has no field 'board'; its fields are 'text'"),
        ({"max_turns": 0}, "max_turns from 1 to 256"),
    ],
)
def test_a_task_file_says_what_is_wrong(
    tmp_path: Path, fields: dict[str, object], cause: str
) -> None:
    with served(Wire()) as address, pytest.raises(FamilyError, match=cause):
        family(tmp_path, **{"address": address, **fields})  # type: ignore[arg-type]


def test_the_description_is_read_from_the_server_itself() -> None:
    wire = Wire()
    with served(wire) as address:
        found = describe(ResolvedServer(parse_address(address), address))
        assert found.config["environment"] == "Guess"
        assert len(found.first_game) > 1
        assert wire.num_opened == 1
