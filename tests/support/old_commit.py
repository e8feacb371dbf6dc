"""The shoal of an earlier commit, to run beside the present one.

Both must form one swarm, answer each other's commands and go on in each other's folders.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from tests.support.processes import Program

OLD_COMMIT = "1bdb8eb3f0187f11c2a90b217be55cd050f7b57a"
FIXTURES = Path(__file__).parent.parent / "fixtures"
"""What `tests.support.record_old_commit` wrote, for clones without the history."""
_ROOT = Path(__file__).parent.parent.parent
_MODULE = "p2p.cli.entry"
_COMMAND_SECONDS = 60.0

_BY_ALL = frozenset(
    {
        *("/ipfs/id/1.0.0", "/ipfs/id/push/1.0.0", "/ipfs/ping/1.0.0"),
        *("/meshsub/1.0.0", "/meshsub/1.1.0", "/meshsub/1.2.0"),
        *("/shoal/manifest/1", "/shoal/peers/1", "/shoal/reach/1"),
        "/libp2p/circuit/relay/0.2.0/stop",
    }
)
SERVED = {
    "node": _BY_ALL | {"/shoal/rollouts/1"},
    "bootstrap": _BY_ALL,
    "bootstrap --relay --dht": _BY_ALL | {"/libp2p/circuit/relay/0.2.0/hop", "/ipfs/kad/1.0.0"},
    "judge": _BY_ALL | {"/shoal/judge/1"},
}
"""The protocols that peers of the old commit name to who asks them (libp2p identify)."""
ADDED = frozenset({"/shoal/full/1", "/libp2p/dcutr"})
"""And what ours serve beside them: the word of a full peer that it lets the other go, and the talk
before a hole is punched."""
TAKEN_NO_LONGER = frozenset({"/ipfs/id/push/1.0.0"})
"""Of these: what a peer pushes of itself was kept, as much as it liked, and asked for by nobody."""


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
    folder.mkdir(exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return Program(module=_MODULE, tree=folder)


def run(
    program: Program, *arguments: str, columns: int = 100, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one `shoal` command to its end in a folder, on a terminal of so many columns."""
    own = {"COLUMNS": str(columns), "PYTHONSAFEPATH": "1"} if folder else {"COLUMNS": str(columns)}
    return subprocess.run(
        [*program.command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder or program.tree,
        timeout=_COMMAND_SECONDS,
        env={**os.environ, **program.environment, **own},
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


_KEYED_BY_DATA = (
    "ignore",
    "reject",
    "dropped",
    "points",
    "failures",
    "refused",
    "served",
    "held_out",
)
"""Objects whose keys are counted things."""


def key_paths(answer: Any, at: str = "") -> set[str]:
    """Return the paths of all keys, so that none can go unnoticed; a list is its first item."""
    if isinstance(answer, list):
        return key_paths(answer[0], f"{at}[]") if answer else set()
    if not isinstance(answer, dict) or at.rpartition(".")[2] in _KEYED_BY_DATA:
        return set()
    # A topic names its swarm by the digest of the families that the preset has by then.
    named = {re.sub(r"/[0-9a-f]{64}/", "/…/", key): value for key, value in answer.items()}
    return {f"{at}.{key}" for key in named}.union(
        *(key_paths(value, f"{at}.{key}") for key, value in named.items())
    )
