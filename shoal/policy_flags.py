"""Loads the policy of a command: a node's newest checkpoint, or another model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal.nearby import folder_with
from shoal_base.extras import missing_for_policy
from shoal_base.node_folders import NODE_FOLDER
from shoal_settings.exits import EXIT_NO_NODE, fail
from shoal_settings.parser import path

if TYPE_CHECKING:
    from shoal_policy.model.loading import Policy

_ATTEMPTS: Final = 3
"""Attempts to load the newest checkpoint of a node that trains and replaces its checkpoints."""


def policy_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a policy."""
    parser.add_argument(
        "--data-dir",
        dest="data_dir",
        metavar="DIR",
        type=path,
        help="folder of the node whose newest checkpoint is used (default: the node here)",
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", type=path, help="use this checkpoint instead of the newest"
    )
    parser.add_argument(
        "--model", metavar="NAME", help="use a model, named as for --model of a node"
    )
    parser.add_argument("--device", default="auto", help="torch device (default: %(default)s)")


def chosen_policy(command: str, arguments: argparse.Namespace) -> Policy:
    """Load the policy that the flags name. Raises UsageExit after printing one line."""
    chosen = [name for name in ("model", "checkpoint", "data_dir") if getattr(arguments, name)]
    if len(chosen) > 1:
        raise fail(command, f"--{chosen[0]} and --{chosen[1].replace('_', '-')}: give one of them")
    _refuse(command, arguments.device)
    if arguments.model:
        return policy_of_model(command, arguments.model, device=arguments.device)
    if arguments.checkpoint is not None:
        return policy_of_checkpoint(command, arguments.checkpoint, device=arguments.device)
    folder = folder_with("checkpoints", arguments.data_dir or NODE_FOLDER)
    return _newest_policy(command, folder, arguments.device)


def _newest_policy(command: str, folder: Path, device: str) -> Policy:
    """Load a node's newest checkpoint. Raises UsageExit after printing one line."""
    from shoal_policy.checkpoint.saved import CheckpointError

    for _ in range(_ATTEMPTS):
        found = newest_checkpoint_in(command, folder)
        if found is None:
            why = f"no checkpoint in {folder}; name a node's --data-dir, or a --model"
            raise fail(command, why, EXIT_NO_NODE)
        try:
            return _load(found, device)
        except CheckpointError as error:
            why = str(error)
            if found.exists():
                break
            # A node that trains has replaced it while torch was imported.
    raise fail(command, why)


def newest_checkpoint_in(command: str, folder: Path) -> Path | None:
    """Return the newest whole checkpoint of a node; None if it has none. Raises UsageExit."""
    from shoal_policy.checkpoint.saved import latest_checkpoint

    try:
        return latest_checkpoint(folder).path
    except OSError as error:  # no permission, or a name that is too long
        raise fail(command, f"cannot read {folder} ({error.strerror})") from None


def policy_of_model(
    command: str, model: str, *, device: str = "auto", prompt: str = "auto"
) -> Policy:
    """Load a model by its name. Raises UsageExit after printing one line."""
    from shoal_settings.early import refusal_of_model

    _refuse(command, device)
    if (why := refusal_of_model(model)) is not None:
        raise fail(command, why)
    from shoal_policy.generation.self_check import check_answers
    from shoal_policy.model.loading import ModelError, check_device, load_policy

    try:
        check_device(device)
        policy = load_policy(model, device=device, prompt=prompt)
        check_answers(policy)
        return policy
    except ModelError as error:
        raise fail(command, str(error)) from None
    except OSError as error:  # a name that is too long
        raise fail(command, f"cannot read {model} ({error.strerror})") from None


def policy_of_checkpoint(command: str, path: Path, *, device: str = "auto") -> Policy:
    """Load a checkpoint. Raises UsageExit after printing one line."""
    from shoal_policy.checkpoint.saved import CheckpointError

    _refuse(command, device)
    try:
        return _load(path, device)
    except CheckpointError as error:
        raise fail(command, str(error)) from None


def _load(path: Path, device: str) -> Policy:
    """Load a checkpoint; a damaged one is refused before torch is imported.

    Raises:
        CheckpointError: it is damaged, or its model cannot be loaded on this device.
    """
    from shoal_policy.checkpoint.saved import CheckpointError, read_state
    from shoal_settings.schema import Settings

    read_state(path)
    from shoal_policy.checkpoint.saving import load_checkpoint
    from shoal_policy.model.loading import ModelError, check_device

    try:
        check_device(device)
        return load_checkpoint(path, Settings(device=device)).policy
    except ModelError as error:
        raise CheckpointError(str(error)) from None


def _refuse(command: str, device: str) -> None:
    """Refuse what can be refused without importing torch, which takes seconds."""
    from shoal_settings.early import refusal_of_device

    if (why := missing_for_policy() or refusal_of_device(device)) is not None:
        raise fail(command, why)
