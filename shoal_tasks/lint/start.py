"""The quick lint at every start with task files; its results are cached for sound ones."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from shoal_base.cache_folder import cache_folder
from shoal_base.extras import missing_for_tasks
from shoal_base.files import write_atomically
from shoal_tasks.errors import FamilyError, ServerUnavailable
from shoal_tasks.lint.attempts import Examples
from shoal_tasks.lint.measure import QUICK, lint
from shoal_tasks.lint.report import Finding, Level, Report
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import installed_version
from shoal_tasks.task_file import examples_in, load_task_file

log = logging.getLogger(__name__)

_VERSION: Final = 1
"""Incremented when lint learns to find more, so that cached results are not used."""


def lint_at_start(task_files: Sequence[str]) -> None:
    """Lint the families of these files quickly, and log a warning about unproven ones.

    Unusable files and unavailable servers are reported elsewhere, where their family is needed.

    Raises `FamilyError`: one line about the first task that rewards something other than correct
    answers.
    """
    if missing_for_tasks() is not None:
        return
    for path in task_files:
        try:
            spec, examples = load_task_file(Path(path)), examples_in(Path(path))
        except (FamilyError, ServerUnavailable):
            continue
        if installed_version(spec.verifier) != spec.verifier_version:
            continue  # such a family is ignored, or refused where it is needed
        report = quick_report(spec, examples)
        if report.is_refused:
            raise FamilyError(f"{path} is not sound: {report.sentence}")
        if report.sentence:
            log.warning("%s: %s", path, report.sentence)


def quick_report(spec: FamilySpec, examples: Examples) -> Report:
    """Return a family's quick lint, from the cache if an earlier start did not refuse it."""
    path = _cache_path(spec, examples)
    known = None if path is None else _read(path)
    if known is not None:
        return known
    report = lint(spec, examples, QUICK)
    if path is not None and not report.is_refused and report.is_complete:
        fields = {**asdict(report), "findings": [asdict(one) for one in report.findings]}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(fields).encode())
        except OSError:
            pass  # the next start lints again
    return report


def _cache_path(spec: FamilySpec, examples: Examples) -> Path | None:
    """Return the path of a family's cached report; None for a user without a home folder."""
    what = [
        _VERSION, spec.name, spec.digest.hex(), spec.verifier, spec.verifier_version,
        str(spec.answer_format), examples.good, examples.bad,
    ]  # fmt: skip
    name = hashlib.sha256(json.dumps(what).encode()).hexdigest()
    try:
        return cache_folder("lint") / f"{name}.json"
    except LookupError:
        return None


def _read(path: Path) -> Report | None:
    try:
        fields: Any = json.loads(path.read_bytes())
        findings = tuple(
            Finding(level=Level(one["level"]), check=one["check"], message=one["message"])
            for one in fields.pop("findings")
        )
        forms = tuple(fields.pop("forms"))
        return Report(**fields, forms=forms, findings=findings)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
