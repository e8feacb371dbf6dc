"""`plan.toml`: an experiment's plan, written before its first round is run.

    first start     plan.toml: seeds, rounds, arms, settings, figure of merit, tests
    later starts    differences are appended as [[added]], with the jobs that were finished by then

The first part is never rewritten, and every result states its SHA-256. So a reader sees which
seeds, arms or lengths were chosen after results could be seen.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from shoal_lab.experiment.plan import Arm, Experiment, Job

PLAN: Final = "plan.toml"
_ADDED: Final = "\n[[added]]\n"
_HEAD: Final = (
    "# Written by `shoal experiment` before the first round was played. Whatever was asked for\n"
    "# later stands below as [[added]], with the number of jobs that were finished by then.\n"
)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def register(
    out: Path,
    experiment: Experiment,
    *,
    merit: str,
    tests: Sequence[str],
    rates: Sequence[float] = (),
) -> None:
    """Write this folder's plan, or append to an existing plan what it lacks.

    `rates` are the learning rates among which each arm's is chosen before the comparison.
    """
    path = out / PLAN
    requested = _requested(experiment, rates)
    if not path.exists():
        words = {"figure_of_merit": merit, "tests": list(tests)}
        before = {"finished_jobs_before": n} if (n := _finished(out)) else {}
        path.write_text(_HEAD + _lines({**requested, **words, **before}))
        return
    new = _new(tomllib.loads(path.read_text()), tomllib.loads(_lines(requested)))
    if new:
        with path.open("a") as file:
            file.write(_ADDED + _lines({"finished_jobs": _finished(out), **new}))


def registered(out: Path, done: Sequence[Job] = ()) -> dict[str, Any]:
    """Return the hash of the plan as first written, and everything added since.

    `done` are the jobs of a result; the returned value has the number of planned jobs that it
    lacks. Empty if the folder has no plan.
    """
    try:
        text = (out / PLAN).read_text()
        found = tomllib.loads(text)
    except (OSError, ValueError):
        return {}
    planned = text.split(_ADDED, 1)[0]
    return {
        "plan_sha256": hashlib.sha256(planned.encode()).hexdigest(),
        "rounds_before_plan": bool(found.get("finished_jobs_before")),
        "added": [_brief(one) for one in found.get("added", ())],
        "not_played": sorted(
            f"{arm}, seed {seed}"
            for arm in found["arms"]
            for seed in found["seeds"]
            if (arm, seed) not in {(job.arm.name, job.seed) for job in done}
        ),
    }


def _requested(experiment: Experiment, rates: Sequence[float]) -> dict[str, Any]:
    return {
        "experiment": experiment.name,
        "rounds": experiment.rounds,
        "seeds": list(experiment.seeds),
        **({"rates": list(rates)} if rates else {}),
        "base": dict(experiment.base),
        "arms": {arm.name: _arm(arm) for arm in experiment.arms},
    }


def _arm(arm: Arm) -> list[dict[str, Any]]:
    """Return nodes that are alike as one entry with their number."""
    alike = groupby(node.to_json() for node in arm.nodes)
    return [{"nodes": len(list(some)), **node} for node, some in alike]


def _new(plan: dict[str, Any], requested: dict[str, Any]) -> dict[str, Any]:
    """Return the requested parts that are neither in the plan nor among the additions."""
    known = {key: value for key, value in plan.items() if key != "added"}
    for one in plan.get("added", ()):
        for key, value in one.items():
            known[key] = _joined(known.get(key), value)
    found: dict[str, Any] = {}
    for key, value in requested.items():
        more = _beyond(known.get(key), value, by_entry=key == "seeds")
        if more:
            found[key] = more
    return found


def _beyond(had: Any, value: Any, *, by_entry: bool) -> Any:
    """Return the new part of a value: for tables and seeds, only the new entries."""
    if by_entry:
        return [one for one in value if one not in (had or ())]
    if isinstance(value, dict):
        return {name: one for name, one in value.items() if (had or {}).get(name) != one}
    return value if had != value else None


def _joined(had: Any, more: Any) -> Any:
    if isinstance(had, dict):
        return {**had, **more}
    return [*had, *more] if isinstance(had, list) else more


def _brief(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return an addition without the contents of its arms and settings."""
    return {key: list(value) if isinstance(value, dict) else value for key, value in one.items()}


def _finished(out: Path) -> int:
    return sum(1 for _ in out.glob("rounds/*/seed-*.jsonl"))


def _lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in values.items())


def _value(value: Any) -> str:
    """Return a JSON value as TOML, on one line but for lists of tables and tables of lists."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pairs(value)) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if value is None:
        return '""'
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _pairs(value: Mapping[str, Any]) -> Iterator[str]:
    for key, one in value.items():
        yield f"{_key(key)} = {_value(one)}"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
