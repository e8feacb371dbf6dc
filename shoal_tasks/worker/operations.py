"""The worker's operations, and the parsers of its replies, which are not trusted. Sans-IO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal_base.bounded import LINE_CHARS
from shoal_tasks.errors import FamilyError, UnknownFamily, WorkerProtocolError, WorkerUnavailable
from shoal_tasks.limits import (
    MAX_ITEMS_OF_A_JUDGE,
    MAX_ITEMS_OF_TESTS,
    MAX_ITEMS_ON_A_SERVER,
    MAX_ITEMS_PER_FRAME,
    MAX_QUESTION_CHARS,
)
from shoal_tasks.spec import TESTS_WORKER, FamilySpec, JsonValue
from shoal_tasks.turns import MAX_TRANSCRIPT_CHARS
from shoal_tasks.types import (
    GroupRequest,
    Play,
    PlayRequest,
    ScoreRequest,
    ScoreResult,
    Split,
    TaskCoordinates,
    TaskItem,
)
from shoal_tasks.worker.batching import CallFailure, Operation
from shoal_wire.limits import MAX_COMPLETION_BYTES, MAX_COMPLETIONS, MAX_INDEX, MAX_SEED


class ConfiguredFamilies:
    """The configured families, for checking coordinates before they are sent."""

    def __init__(self, specs: Sequence[FamilySpec]) -> None:
        """Raise ValueError if there are no specs, or two with the same name."""
        self.specs = tuple(specs)
        self.by_name = {spec.name: spec for spec in specs}
        self._judges = {spec.worker_key for spec in specs if spec.is_local}
        self._servers = {spec.worker_key for spec in specs if spec.is_on_a_server}
        if not specs or len(self.by_name) != len(self.specs):
            raise ValueError("need at least one family, and names must be unique")

    def row(self, task: TaskCoordinates) -> dict[str, JsonValue]:
        """Return the coordinates as the worker reads them. Raises `UnknownFamily`, ValueError."""
        spec = self.by_name.get(task.family)
        if spec is None or spec.digest != task.config_digest:
            raise UnknownFamily(f"no family {task.family!r} with this configuration")
        if not (0 <= task.seed < MAX_SEED and 0 <= task.index < MAX_INDEX):
            raise ValueError("seed or index out of range")
        return {"family": task.family, "seed": task.seed, "index": task.index}

    def worker_key(self, task: TaskCoordinates) -> str:
        """Return the key of the worker that serves a task's family."""
        spec = self.by_name.get(task.family)
        return "" if spec is None else spec.worker_key

    def max_played(self, worker_key: str) -> int:
        """Return the maximum number of items per frame for generating and playing."""
        return MAX_ITEMS_ON_A_SERVER if worker_key in self._servers else MAX_ITEMS_PER_FRAME

    def max_scored(self, worker_key: str) -> int:
        """Return the maximum number of completions per frame."""
        if worker_key == TESTS_WORKER:
            return MAX_ITEMS_OF_TESTS
        return MAX_ITEMS_OF_A_JUDGE if worker_key in self._judges else self.max_played(worker_key)


def item_operation(families: ConfiguredFamilies) -> Operation[TaskCoordinates, TaskItem | str]:
    """Return the operation that generates tasks.

    The result of an item that fails is the generator's error, or `TIMED_OUT_ERROR` if it used up
    its time (a faster machine might succeed). An item that kills the worker raises
    `WorkerUnavailable`, because that says nothing about the task.
    """

    def on_failure(_task: TaskCoordinates, failure: CallFailure) -> TaskItem | str:
        raise WorkerUnavailable(f"generating a task: {failure}")

    return Operation(
        name="item",
        row=families.row,
        read=read_item,
        on_failure=on_failure,
        worker_key=families.worker_key,
        max_items=families.max_played,
    )


def score_operation(families: ConfiguredFamilies) -> Operation[ScoreRequest, ScoreResult]:
    """Return the operation that scores completions. One that kills the worker gets 0, marked so."""

    def row(request: ScoreRequest) -> dict[str, JsonValue]:
        # Longer than any completion on the wire: a frame might not hold it.
        text = request.text if len(request.text) <= MAX_COMPLETION_BYTES else ""
        finish_reason = str(request.finish_reason)
        return {**families.row(request.task), "text": text, "finish_reason": finish_reason}

    return Operation(
        name="score",
        row=row,
        read=read_score,
        size=lambda request: min(len(request.text), MAX_COMPLETION_BYTES),
        worker_key=lambda request: families.worker_key(request.task),
        max_items=families.max_scored,
        on_failure=lambda _request, failure: _unscored(failure),
    )


def group_operation(
    families: ConfiguredFamilies,
) -> Operation[GroupRequest, tuple[ScoreResult, ...]]:
    """Return the operation that scores whole groups. One that kills the worker gets 0 for each."""

    def row(request: GroupRequest) -> dict[str, JsonValue]:
        answers: list[JsonValue] = [
            [text if len(text) <= MAX_COMPLETION_BYTES else "", str(finish_reason)]
            for text, finish_reason in request.answers
        ]
        return {**families.row(request.task), "answers": answers}

    return Operation(
        name="score_group",
        row=row,
        read=read_group,
        size=group_chars,
        weight=lambda request: len(request.answers),
        matches=lambda request, results: len(results) == len(request.answers),
        worker_key=lambda request: families.worker_key(request.task),
        max_items=families.max_scored,
        on_failure=lambda request, failure: (_unscored(failure),) * len(request.answers),
    )


def _unscored(failure: CallFailure) -> ScoreResult:
    return ScoreResult(
        reward=0.0,
        timed_out=failure is CallFailure.TIMED_OUT,
        crashed=failure is CallFailure.CRASHED,
    )


def group_chars(request: GroupRequest) -> int:
    """Return the number of characters of a group's completions."""
    return sum(len(text) for text, _ in request.answers)


def play_operation(families: ConfiguredFamilies) -> Operation[PlayRequest, Play]:
    """Return the operation that plays environments. A game that kills the worker is over."""
    return Operation(
        name="play",
        row=lambda request: {**families.row(request.task), "messages": list(request.messages)},
        read=read_play,
        # The reply counts too: it must also fit into a frame.
        size=lambda request: play_chars(request) + MAX_TRANSCRIPT_CHARS,
        worker_key=lambda request: families.worker_key(request.task),
        max_items=families.max_played,
        on_failure=lambda _request, failure: Play.over(str(failure)),
    )


def play_chars(request: PlayRequest) -> int:
    """Return the number of characters of a completion with these messages."""
    return sum(len(message) + 1 for message in request.messages)


def read_item(row: Any) -> TaskItem | str:
    """Parse one task, or the reason why it cannot be generated."""
    if not isinstance(row, dict):
        raise WorkerProtocolError("item is not an object")
    if "error" in row:
        return str(row["error"])[:LINE_CHARS]
    question, answer, example = (row.get(key) for key in ("question", "answer", "example"))
    if not isinstance(question, str) or len(question) > MAX_QUESTION_CHARS:
        raise WorkerProtocolError("question is not a text of permitted length")
    if not (isinstance(answer, str | None) and isinstance(example, str | None)):
        raise WorkerProtocolError("item has the wrong fields")
    try:
        question.encode()  # a lone surrogate has no digest
        part = Split(row["part"])
    except (KeyError, ValueError):
        raise WorkerProtocolError("item has the wrong fields") from None
    return TaskItem(question=question, answer=answer, example=example, part=part)


def read_score(row: Any) -> ScoreResult:
    """Parse one score. The worker has processed hostile text, so every field is checked.

    Raises `FamilyError`: the family's own function is not deterministic.
    """
    if isinstance(row, dict) and isinstance(row.get("nondeterministic"), str):
        raise FamilyError(row["nondeterministic"][:LINE_CHARS])
    reward = _reward(row if isinstance(row, dict) else {})
    return ScoreResult(
        reward=reward,
        timed_out=row.get("timed_out") is True,
        error=_line(row.get("error")),
        note=_line(row.get("note")),
    )


def read_group(row: Any) -> tuple[ScoreResult, ...]:
    """Parse the scores of one group. Raises as `read_score`."""
    if isinstance(row, dict):
        return (read_score(row),)
    if not isinstance(row, list) or len(row) > MAX_COMPLETIONS:
        raise WorkerProtocolError("a group's scores are not a list")
    return tuple(map(read_score, row))


def _line(value: object) -> str:
    return value[:LINE_CHARS] if isinstance(value, str) else ""


def read_play(row: Any) -> Play:
    """Parse an environment's replies."""
    if not isinstance(row, dict):
        raise WorkerProtocolError("play is not an object")
    observations, error = row.get("observations"), row.get("error")
    if (
        not isinstance(observations, list)
        or not all(isinstance(one, str) for one in observations)
        or sum(map(len, observations)) > MAX_TRANSCRIPT_CHARS
        or not isinstance(error, str)
    ):
        raise WorkerProtocolError("play has the wrong fields")
    return Play(
        observations=tuple(observations),
        done=row.get("done") is True,
        reward=_reward(row),
        error=error[:LINE_CHARS],
    )


def _reward(row: dict[str, Any]) -> float:
    reward = row.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise WorkerProtocolError("reward is not a number")
    # Compared before the conversion: `float` fails on an integer of a thousand digits.
    if not 0.0 <= reward <= 1.0:
        raise WorkerProtocolError("reward is out of range")
    return float(reward)
