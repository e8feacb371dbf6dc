"""Chooses the policy that a command answers with: a node's newest checkpoint, or another model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from shoal.nearby import folder_with
from shoal_base.extras import missing_for_trainer
from shoal_settings.exits import EXIT_NO_NODE, fail
from shoal_settings.parser import path

if TYPE_CHECKING:
    from shoal_policy.model.loading import Policy


def policy_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a policy."""
    parser.add_argument(
        "--data-dir",
        dest="data_dir",
        metavar="DIR",
        type=path,
        help="a node's folder, whose newest checkpoint answers (default: the one that is here)",
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", type=path, help="this checkpoint, in place of the newest"
    )
    parser.add_argument(
        "--model", metavar="NAME", help="a model by the names that --model of a node takes"
    )
    parser.add_argument("--device", default="auto", help="torch device (default: %(default)s)")


def chosen_policy(command: str, arguments: argparse.Namespace) -> Policy:
    """Load the policy that the flags name. Raises UsageExit, after one line of why.

    Late imports: torch takes seconds, and `--help` needs none of it.
    """
    if (missing := missing_for_trainer()) is not None:
        raise fail(command, missing)
    from shoal_policy.checkpoint.saving import CheckpointError, latest_checkpoint, load_checkpoint
    from shoal_policy.model.loading import ModelError, check_device, load_policy
    from shoal_settings.schema import Settings

    chosen = [name for name in ("model", "checkpoint", "data_dir") if getattr(arguments, name)]
    if len(chosen) > 1:
        raise fail(command, f"--{chosen[0]} and --{chosen[1].replace('_', '-')}: give one of them")
    try:
        check_device(arguments.device)
        if arguments.model:
            return load_policy(arguments.model, device=arguments.device)
        folder = arguments.data_dir or folder_with("checkpoints")
        found = arguments.checkpoint or latest_checkpoint(folder).path
        if found is None:
            why = f"no checkpoint in {folder}; name a node's --data-dir, or a --model"
            raise fail(command, why, EXIT_NO_NODE)
        return load_checkpoint(found, Settings(device=arguments.device)).policy
    except (ModelError, CheckpointError) as error:
        raise fail(command, str(error)) from None
    except OSError as error:  # a name that no disk takes, a folder that may not be read
        named = arguments.checkpoint or arguments.data_dir or arguments.model
        why = f"cannot read {named} ({error.strerror})"
        raise fail(command, why) from None
