"""Reads a node's data directory without shoal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of ``metrics.jsonl``; a kill may leave a partial last one."""
    lines = (path / "metrics.jsonl").read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]
