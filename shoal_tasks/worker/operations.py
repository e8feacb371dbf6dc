"""The operations of the worker, and how its replies are read: none is trusted. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from shoal_tasks.errors import FamilyError, UnknownFamily, WorkerProtocolError, WorkerUnavailable
from shoal_tasks.families import FamilySpec, config_digest
from shoal_tasks.limits import (
    MAX_ITEMS_OF_A_JUDGE,
    MAX_ITEMS_ON_A_SERVER,
    MAX_ITEMS_PER_FRAME,
    MAX_QUESTION_CHARS,
    TIMED_OUT_ERROR,
)
from shoal_tasks.spec import JsonValue
from shoal_tasks.split import Split
from shoal_tasks.turns import MAX_TRANSCRIPT_CHARS
from shoal_tasks.types import (
    Play,
    PlayRequest,
    ScoreRequest,
    ScoreResult,
    TaskCoordinates,
    TaskItem,
)
from shoal_tasks.worker.plan import CallFailure, Operation
from shoal_wire.limits import MAX_COMPLETION_BYTES, MAX_INDEX, MAX_SEED, SHORT_DIGEST_BYTES
from shoal_wire.types import Digest

R = TypeVar("R")
_MAX_ERROR_CHARS: Final = 500


class ConfiguredFamilies:
    """The configured families, for checking coordinates before they travel."""

    def __init__(self, specs: Sequence[FamilySpec]) -> None:
        """Raises ValueError without specs or when two have one name."""
        self.specs = tuple(specs)
        self._digests: Mapping[str, Digest] = {spec.name: config_digest(spec) for spec in specs}
        self._lanes = {spec.name: spec.lane for spec in specs}
        self._judges = {spec.lane for spec in specs if spec.is_local}
        if not specs or len(self._digests) != len(self.specs):
            raise ValueError("need at least one family, and names must be unique")

    def row(self, task: TaskCoordinates) -> dict[str, JsonValue]:
        """The coordinates as the worker reads them; raises `UnknownFamily`, ValueError."""
        if self._digests.get(task.family) != task.config_digest:
            raise UnknownFamily(f"no family {task.family!r} with this configuration")
        if not (0 <= task.seed < MAX_SEED and 0 <= task.index < MAX_INDEX):
            raise ValueError("seed or index out of range")
        return {"family": task.family, "seed": task.seed, "index": task.index}

    def lane(self, task: TaskCoordinates) -> str:
        """Return the name of the worker that has a task's family."""
        return self._lanes.get(task.family, "")

    def most_played(self, lane: str) -> int:
        """Most items in a frame, where each is made by whatever the lane is for."""
        if lane in self._judges:
            return MAX_ITEMS_PER_FRAME
        return MAX_ITEMS_ON_A_SERVER if lane else MAX_ITEMS_PER_FRAME

    def most_scored(self, lane: str) -> int:
        """Most completions in a frame."""
        return MAX_ITEMS_OF_A_JUDGE if lane in self._judges else self.most_played(lane)


TOO_SLOW: Final = Digest(b"slow")
"""Mark of a task that this machine could not make in time. No digest has its length."""


def generate_operation(
    families: ConfiguredFamilies,
    want: Sequence[str],
    parse: Callable[[dict[str, Any]], R],
    *,
    too_slow: R | None = None,
) -> Operation[TaskCoordinates, R | None]:
    """Regenerate tasks. A result is None where the generator itself fails on the coordinates, and
    ``too_slow`` where it used up the item's time: a faster machine may well have made the task.

    An item that kills the worker raises `WorkerUnavailable`: that says nothing about the task.
    """

    def parse_one(row: Any) -> R | None:
        if not isinstance(row, dict):
            raise WorkerProtocolError("item is not an object")
        if "error" in row:
            return too_slow if row["error"] == TIMED_OUT_ERROR else None
        return parse(row)

    def failed(failure: CallFailure) -> R | None:
        raise WorkerUnavailable(f"generating a task: {failure}")

    return Operation(
        message=lambda piece: {
            "op": "generate",
            "want": list(want),
            "items": [families.row(task) for task in piece],
        },
        parse_one=parse_one,
        reply_key="items",
        size=lambda _task: 0,
        lane=families.lane,
        most=families.most_played,
        failed=failed,
    )


def score_operation(families: ConfiguredFamilies) -> Operation[ScoreRequest, ScoreResult]:
    """Score completions. An item that kills the worker gets 0 and says so."""

    def row(request: ScoreRequest) -> dict[str, JsonValue]:
        # Longer than any completion the wire allows: no frame could be sure to hold it.
        text = request.text if len(request.text) <= MAX_COMPLETION_BYTES else ""
        return {
            **families.row(request.task),
            "text": text,
            "finish_reason": str(request.finish_reason),
        }

    return Operation(
        message=lambda piece: {"op": "score", "items": [row(request) for request in piece]},
        parse_one=parse_score,
        reply_key="results",
        size=lambda request: min(len(request.text), MAX_COMPLETION_BYTES),
        lane=lambda request: families.lane(request.task),
        most=families.most_scored,
        failed=lambda failure: ScoreResult(
            reward=0.0,
            timed_out=failure is CallFailure.TIMED_OUT,
            crashed=failure is CallFailure.CRASHED,
        ),
    )


def parse_score(row: Any) -> ScoreResult:
    """Read one score; the worker ran over hostile text, so nothing of it is taken on trust.

    Raises `FamilyError`: the family's own function gives other rewards than a moment before.
    """
    if isinstance(row, dict) and isinstance(row.get("unrepeatable"), str):
        raise FamilyError(row["unrepeatable"][:_MAX_ERROR_CHARS])
    reward = _reward(row if isinstance(row, dict) else {})
    error = row.get("error", "")
    return ScoreResult(
        reward=reward,
        timed_out=row.get("timed_out") is True,
        error=error[:_MAX_ERROR_CHARS] if isinstance(error, str) else "",
    )


def _reward(row: dict[str, Any]) -> float:
    reward = row.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise WorkerProtocolError("reward is not a number")
    # Not made a float before: an integer of a thousand digits cannot be one.
    if not 0.0 <= reward <= 1.0:
        raise WorkerProtocolError("reward is out of range")
    return float(reward)


def play_operation(families: ConfiguredFamilies) -> Operation[PlayRequest, Play]:
    """Play environments. One that kills the worker is over."""
    return Operation(
        message=lambda piece: {
            "op": "play",
            "items": [
                {**families.row(request.task), "messages": list(request.messages)}
                for request in piece
            ],
        },
        parse_one=parse_play,
        reply_key="plays",
        # What comes back counts too: a frame holds it as well.
        size=lambda request: play_chars(request) + MAX_TRANSCRIPT_CHARS,
        lane=lambda request: families.lane(request.task),
        most=families.most_played,
        failed=lambda failure: Play(observations=(), done=True, reward=0.0, error=str(failure)),
    )


def play_chars(request: PlayRequest) -> int:
    """Characters of a completion that holds these messages."""
    return sum(len(message) + 1 for message in request.messages)


def parse_play(row: Any) -> Play:
    """Read what an environment answered."""
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
        error=error[:_MAX_ERROR_CHARS],
    )


def parse_question(row: dict[str, Any]) -> str:
    """Read one question."""
    question = row.get("question")
    if not isinstance(question, str) or len(question) > MAX_QUESTION_CHARS:
        raise WorkerProtocolError("question is not a text of permitted length")
    return question


def parse_part(row: dict[str, Any]) -> Split:
    """Read what one question is for."""
    try:
        return Split(row["part"])
    except (KeyError, ValueError):
        raise WorkerProtocolError("no such part of the questions") from None


def parse_asked(row: dict[str, Any]) -> tuple[str, Split]:
    """Read one question and what it is for."""
    return parse_question(row), parse_part(row)


def parse_digest(row: dict[str, Any]) -> Digest:
    """Read one question's digest."""
    try:
        digest = bytes.fromhex(row["digest"])
    except (KeyError, TypeError, ValueError):
        raise WorkerProtocolError("digest is not hexadecimal") from None
    if len(digest) != SHORT_DIGEST_BYTES:
        raise WorkerProtocolError("digest has the wrong length")
    return Digest(digest)


def parse_item(row: dict[str, Any]) -> TaskItem:
    """Read one whole item."""
    answer, metadata = row.get("answer"), row.get("metadata")
    if not (answer is None or isinstance(answer, str)) or not isinstance(metadata, dict):
        raise WorkerProtocolError("item has the wrong fields")
    return TaskItem(question=parse_question(row), answer=answer, metadata=metadata)
