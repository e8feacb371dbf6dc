"""The shoal of an earlier commit, to run beside the present one.

Both must form one swarm, answer each other's commands and go on in each other's folders.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from tests.support.processes import Program

OLD_COMMIT = "1bdb8eb3f0187f11c2a90b217be55cd050f7b57a"
_ROOT = Path(__file__).parent.parent.parent
_MODULE = "p2p.cli.entry"
_COMMAND_SECONDS = 60.0
_COLUMNS = "100"


class NoHistoryError(Exception):
    """The old commit is not here; one line."""


def unpack_old_commit(folder: Path) -> Program:
    """Write the old commit's tree into `folder`; return how to run it.

    Raises NoHistoryError where there is no git, no repository, or only its latest commits.
    """
    command = ["git", "-C", str(_ROOT), "archive", "--format=tar", OLD_COMMIT]
    try:
        made = subprocess.run(command, capture_output=True, check=False, timeout=_COMMAND_SECONDS)
    except FileNotFoundError:
        raise NoHistoryError("git is not installed") from None
    if made.returncode != 0:
        said = made.stderr.decode(errors="replace").strip().splitlines() or ["git archive failed"]
        raise NoHistoryError(f"{OLD_COMMIT[:7]} is not in this clone: {said[0]}")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return Program(module=_MODULE, tree=folder)


def run(program: Program, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one `shoal` command to its end, on a terminal of fixed width."""
    return subprocess.run(
        [*program.command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=program.tree,
        timeout=_COMMAND_SECONDS,
        env={**os.environ, **program.environment, "COLUMNS": _COLUMNS},
    )


def debug(program: Program, data_dir: Path, view: str, *arguments: str) -> dict[str, Any]:
    """Return what `shoal debug VIEW --json` prints."""
    done = run(program, "debug", view, *arguments, "--json", "--data-dir", str(data_dir))
    assert done.returncode == 0, (program.module, view, done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


_CLOCKS = ("latency_ms", "merit", "reports", "sampling_weight", "useful", "weight")


def steady(answer: Any) -> Any:
    """Return a view without what changes while nothing happens: ages, rates, fading numbers."""
    if isinstance(answer, dict):
        return {
            key: steady(value)
            for key, value in answer.items()
            if not key.endswith("_s") and key not in _CLOCKS
        }
    return [steady(item) for item in answer] if isinstance(answer, list) else answer
