"""What a node writes into its data directory, read without shoal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of ``metrics.jsonl``; a kill may leave a torn last one."""
    lines = (path / "metrics.jsonl").read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]
