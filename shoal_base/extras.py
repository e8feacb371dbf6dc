"""Finds the libraries an installation lacks, and the line that says how to get them.

Looks for them without importing any: torch takes seconds.
"""

from __future__ import annotations

import importlib.util
from typing import Final

TASKS: Final = ("reasoning_gym",)
"""The libraries that make questions and score answers."""
TRAINER: Final = ("torch", "transformers", "safetensors", "numpy", "jinja2", *TASKS)
"""The libraries that training imports."""
SERVED: Final = ("httpx", *TASKS)
"""The libraries of a node whose answers come from a server, and that does not train."""

LAB: Final = "shoal_lab"
"""The package of the distribution `shoal-lab`: experiments, and what judges' records say."""


def how_to_get(extra: str) -> str:
    """Return the line that installs an extra, also in a clone, where most people have shoal."""
    return f"pip install 'shoal[{extra}]' (in a clone: .venv/bin/pip install -e '.[{extra}]')"


def missing_for_lab() -> str | None:
    """Return why no experiment can run in this installation, in one line; None where one can."""
    if is_installed(LAB):
        return None
    how = "pip install 'shoal[lab]' (in a clone: .venv/bin/pip install -e lab)"
    return f"{LAB} is not installed: {how}"


def missing_for_trainer(*, served: bool = False) -> str | None:
    """Return why no trainer can run in this installation, in one line; None where one can."""
    return _missing("training needs", SERVED if served else TRAINER)


def missing_for_tasks() -> str | None:
    """Return why this installation cannot make questions and score answers, in one line.

    None where it can.
    """
    return _missing("questions and their scores need", TASKS)


def _missing(who: str, modules: tuple[str, ...]) -> str | None:
    for module in modules:
        if not is_installed(module):
            return f"{who} {module}, which is not installed: {how_to_get('train')}"
    return None


def is_installed(module: str) -> bool:
    """Return whether a module could be imported; imports nothing of it but its parents."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # something that is no module stands in its place
        return False
