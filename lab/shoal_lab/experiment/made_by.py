"""Provenance of a result: command, commit, and a digest of every round it was made from.

A job's file ends with the commit of the code that ran it, so that a folder written by several
versions shows it.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from shoal_base.children import environment
from shoal_lab.experiment.plan import Job

EVENT: Final = "made_by"
UNKNOWN: Final = "unknown"
_SECONDS: Final = 10.0  # git answers in milliseconds; a guess
_OF_THE_RUN: Final = ("--json", "--fresh", "--no-figures")
_HERE: Final = Path(__file__)


@cache
def code_version() -> str:
    """The commit of this code, with ``-dirty`` where it was changed since; else its version."""
    own = _git("ls-files", "--error-unmatch", _HERE.name)  # not a repository around an install
    found = own and _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    if found:
        return found
    try:
        return version("shoal")
    except PackageNotFoundError:
        return UNKNOWN


def last_line() -> dict[str, Any]:
    """Return the last line of a job's file."""
    return {"event": EVENT, "code": code_version()}


def as_typed(argv: Sequence[str]) -> str:
    """The command without the flags that set only places and speed."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word in ("--out", "--jobs"):
            next(words, None)
        elif not word.startswith(("--out=", "--jobs=")) and word not in _OF_THE_RUN:
            kept.append(word)
    return shlex.join(["shoal", "experiment", *kept])


def made_by(out: Path, jobs: Sequence[Job], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return command, seeds, commits and the digest of the jobs' files, as results state them."""
    digest, codes = hashlib.sha256(), set()
    for path in sorted(out / job.file_name for job in jobs):
        data = path.read_bytes()
        digest.update(data)
        last = json.loads(data.splitlines()[-1])
        codes.add(str(last["code"]) if last.get("event") == EVENT else UNKNOWN)
    return {
        "command": str(config.get("command", UNKNOWN)),
        "seeds": sorted({job.seed for job in jobs}),
        "code": sorted(codes),
        "rounds_sha256": digest.hexdigest(),
    }


def markdown(made: Mapping[str, Any]) -> str:
    """The same as text for the end of a page."""
    seeds, code = ", ".join(map(str, made["seeds"])), ", ".join(made["code"])
    which = "" if "--seed-list" in made["command"] else f", seeds {seeds}"
    return (
        f"Made by `{made['command']}`{which}, code of {code}; SHA-256 of the rounds' files, in the "
        f"order of their names: `{made['rounds_sha256']}`.\n"
        f"{_planned(made)}"
    )


def _planned(made: Mapping[str, Any]) -> str:
    """Describe the plan; empty if the rounds were run without one."""
    if "plan_sha256" not in made:
        return ""
    when = "after some rounds" if made["rounds_before_plan"] else "before the first round"
    lines = [f"\nPlanned {when} in `plan.toml` (SHA-256 `{made['plan_sha256']}`).\n"]
    if made["not_played"]:
        lines.append(f"Planned and not among these: {'; '.join(made['not_played'])}.\n")
    for one in made["added"]:
        what = "; ".join(
            f"{key} {', '.join(map(str, value)) if isinstance(value, list) else value}"
            for key, value in one.items()
            if key != "finished_jobs"
        )
        lines.append(f"Added after {one['finished_jobs']} jobs were finished: {what}.\n")
    return "".join(lines)


def _git(*words: str) -> str:
    """Return git's answer; empty without git, or outside of a checkout."""
    try:
        found = subprocess.run(
            ["git", "-C", str(_HERE.parent), *words],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env=environment(),
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()
