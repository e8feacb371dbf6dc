"""Task files as a user writes them, and requests to their families."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal_tasks.types import ScoreRequest, TaskCoordinates
from shoal_wire.types import FinishReason


def task_file(
    folder: Path, name: str, content: Sequence[Mapping[str, object]] = (), /, **fields: object
) -> Path:
    """Write a task file, and its rows if there are any; fields with None are omitted."""
    folder.mkdir(exist_ok=True)
    if content:
        (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, content)))
        fields = {"rows": "rows.jsonl", **fields}
    table = {"name": name, **fields}
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items() if value is not None]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines))
    return path


def score_of(
    task: TaskCoordinates, text: str, finish: FinishReason = FinishReason.STOP
) -> ScoreRequest:
    """Return the reward of a text."""
    return ScoreRequest(task=task, text=text, finish_reason=finish)
