"""Atomic checkpoints: model, optimiser, counters, and which groups they contain.

    round-000123.tmp-<pid>-<random>/   written, every file flushed to disk
            │ rename, then flush the parent
            ▼
    round-000123/                      complete, or it does not exist
       model/          Hugging Face folder, tokenizer included; with LoRA peft's adapter folder
       optimizer.pt    loaded with weights_only
       state.json      TrainerState
       manifest.json   written last: SHA-256 and size of every other file

A second checkpoint of the same round becomes ``round-000123.1``: no valid checkpoint is ever
overwritten, so a kill cannot lose the previous one. The ids of the groups that were trained on are
inside: their effect and the record of it become durable in one rename (exactly once, see
docs/contributing/architecture.md).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shoal_base.files import is_full, sync
from shoal_policy.checkpoint.saved import (
    FORMAT_VERSION,
    TEMPORARY,
    CheckpointError,
    NoRoomError,
    TrainerState,
    cause_of,
    fault_of,
    newest_first,
    numbered,
    read_state,
    sha256_of,
    state_to_json,
)
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.model.lora import is_adapter, load_adapter, save_adapter
from shoal_policy.model.writing import failures_as_os_errors
from shoal_policy.update.grpo import build_optimizer
from shoal_settings.schema import Settings

KEEP = 2
"""Complete checkpoints kept: the newest and one fallback."""

_LEAST_BYTES = 1 << 16
"""Free bytes below which a failed write counts as a full disk: torch does not report why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint:
    """A trainer's state as it was saved."""

    policy: Policy
    optimizer: Any
    state: TrainerState


def save_checkpoint(
    directory: Path,
    policy: Policy,
    optimizer: Any,
    state: TrainerState,
    *,
    keep: int = KEEP,
) -> Path:
    """Write ``directory/checkpoints/round-…`` and return its path once it is on disk.

    Then deletes older checkpoints beyond `keep` and leftovers of interrupted writes.
    Raises CheckpointError if it cannot be written, NoRoomError for a full disk; earlier checkpoints
    are then untouched.
    """
    root = directory / "checkpoints"
    _check_room(root, state.round)
    temporary = root / f"round-{state.round:06d}.tmp-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        temporary.mkdir(parents=True)
        with failures_as_os_errors():
            _write(temporary, policy, optimizer, state)
        final = _free_name(root, state.round)
        temporary.rename(final)
        sync(root)
        sync(directory)
    except Exception as error:
        full = is_full(error) or _free_bytes(root) < _LEAST_BYTES
        _remove_leftovers(root)  # frees their space on a full disk
        what = f"cannot write {final_name(state.round)}"
        if full:
            raise NoRoomError(f"{what}: no space left on the disk") from error
        if not isinstance(error, OSError):
            raise
        raise CheckpointError(f"{what}: {cause_of(error)}") from error
    _prune(root, final, keep)
    return final


def load_checkpoint(path: Path, settings: Settings) -> LoadedCheckpoint:
    """Load policy, optimiser and state of a checkpoint that `latest_checkpoint` verified.

    Device, dtypes and learning rate come from `settings`, not from the checkpoint. The policy keeps
    the name it was saved under. Raises CheckpointError.
    """
    try:
        state, name = read_state(path)
        policy = _load_policy(
            path / "model",
            name,
            device=settings.device,
            dtype=settings.dtype,
            prompt=settings.prompt,
        )
        optimizer = build_optimizer(settings, policy)
        _load_optimizer(path / "optimizer.pt", optimizer, policy)
    except CheckpointError:
        raise
    except Exception as error:  # unpickling damaged bytes raises arbitrary errors
        raise CheckpointError(f"cannot read {path.name}: {cause_of(error)}") from error
    return LoadedCheckpoint(policy=policy, optimizer=optimizer, state=state)


def _load_optimizer(path: Path, optimizer: Any, policy: Policy) -> None:
    """Load an optimiser's saved state; its settings stay unchanged."""
    settings = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    optimizer.load_state_dict(torch.load(path, weights_only=True, map_location=policy.device))
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        group.update(own)


def _load_policy(folder: Path, name: str, **options: Any) -> Policy:
    """Return the checkpoint's model, or its adapter on the base model of that name."""
    if not is_adapter(folder):
        return load_policy(str(folder), name=name, **options)
    return load_adapter(load_policy(name, **options), folder)


def final_name(round_: int) -> str:
    """Return the folder name of a round's checkpoint."""
    return f"round-{round_:06d}"


def _write(folder: Path, policy: Policy, optimizer: Any, state: TrainerState) -> None:
    """Write all files of a checkpoint into an empty folder and flush them to disk."""
    if policy.adapter is None:
        policy.model.save_pretrained(folder / "model", state_dict=policy.weights())
    else:
        save_adapter(policy, folder / "model")
    policy.tokenizer.save_pretrained(folder / "model")
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    (folder / "state.json").write_text(json.dumps(state_to_json(state, policy.name)))
    files = {}
    for file in _files(folder):
        files[file.relative_to(folder).as_posix()] = {
            "sha256": sha256_of(file),
            "size": file.stat().st_size,
        }
        sync(file)
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"format_version": FORMAT_VERSION, "files": files}))
    for entry in (manifest, folder / "model", folder):
        sync(entry)


def _prune(root: Path, saved: Path, keep: int) -> None:
    """Delete checkpoints older than the `keep` newest complete ones up to `saved`.

    Anything newer than `saved` is a later state that could not be read; it is left for people.
    Failing to delete is no error: the next save tries again.
    """
    paths = list(newest_first(root))
    num_kept = 0
    for path in paths[paths.index(saved) :]:
        if num_kept >= keep:
            # Renamed first, so that a kill while deleting leaves no partial checkpoint.
            doomed = path.with_name(f"{path.name}.tmp-deleted-{secrets.token_hex(4)}")
            try:
                path.rename(doomed)
            except OSError:
                continue
        elif fault_of(path, hashes=False) is None:
            num_kept += 1
    _remove_leftovers(root)


def _remove_leftovers(root: Path) -> None:
    """Delete leftovers of interrupted writes: only one trainer writes here."""
    for entry in list(root.iterdir()) if root.is_dir() else ():
        if TEMPORARY.fullmatch(entry.name):
            shutil.rmtree(entry, ignore_errors=True)


def _check_room(root: Path, round_: int) -> None:
    """Raise NoRoomError, before writing, if one as large as the newest would not fit."""
    newest = next(newest_first(root), None)
    needed = sum(file.stat().st_size for file in _files(newest)) if newest is not None else 0
    free = _free_bytes(root)
    if needed > free:
        _remove_leftovers(root)
        free = _free_bytes(root)
    if needed > free:
        raise NoRoomError(
            f"cannot write {final_name(round_)}: no space left on the disk "
            f"({needed >> 20} MiB needed, {free >> 20} MiB free)"
        )


def _free_bytes(root: Path) -> int:
    """Return the free bytes of the disk; a huge number if that is unknown."""
    try:
        return shutil.disk_usage(root if root.is_dir() else root.parent).free
    except OSError:
        return 1 << 62


def _free_name(root: Path, round_: int) -> Path:
    """Return a name that sorts after every checkpoint of the same round."""
    taken = [number for each, number, _ in numbered(root) if each == round_]
    name = final_name(round_)
    return root / (f"{name}.{max(taken) + 1}" if taken else name)


def _files(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.rglob("*") if entry.is_file())
