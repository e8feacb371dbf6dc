"""Finds missing libraries, and the command that installs them.

Looks for them without importing any: torch takes seconds.
"""

from __future__ import annotations

import importlib.util
from typing import Final

TASKS: Final = ("reasoning_gym",)
"""The libraries that generate questions and score answers."""
POLICY: Final = ("torch", "transformers", "safetensors", "numpy", "jinja2")
"""The libraries that load a model and sample from it."""
TRAINER: Final = (*POLICY, *TASKS)
"""The libraries that training imports."""
SERVED: Final = ("httpx", *TASKS)
"""The libraries of a node that only generates, on a server."""

LAB: Final = "shoal_lab"
"""The package of the distribution `shoal-lab`: experiments, and reports of judges' records."""


def how_to_get(extra: str) -> str:
    """Return the command that installs an extra, with its variant for a clone."""
    return f"pip install 'shoal[{extra}]' (in a clone: .venv/bin/pip install -e '.[{extra}]')"


def missing_for_lab() -> str | None:
    """Return, in one line, why no experiment can run in this installation; None if one can."""
    if is_installed(LAB):
        return None
    how = "pip install 'shoal[lab]' (in a clone: .venv/bin/pip install -e lab)"
    return f"{LAB} is not installed: {how}"


def missing_for_trainer(*, served: bool = False) -> str | None:
    """Return, in one line, why no trainer can run in this installation; None if one can."""
    return _missing("training needs", SERVED if served else TRAINER, "train")


def missing_for_policy() -> str | None:
    """Return, in one line, why this installation cannot load a model; None if it can."""
    return _missing("a model needs", POLICY, "train")


def missing_for_tasks() -> str | None:
    """Return, in one line, why this installation cannot generate questions and score answers.

    None if it can.
    """
    return _missing("questions and their scores need", TASKS, "tasks")


def _missing(who: str, modules: tuple[str, ...], extra: str) -> str | None:
    for module in modules:
        if not is_installed(module):
            return f"{who} {module}, which is not installed: {how_to_get(extra)}"
    return None


def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing more than its parents."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its name is taken by an object that is not a module
        return False
