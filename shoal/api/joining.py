"""`shoal.connect`: attaches to the node in a folder, or starts one without a trainer in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shoal.api.groups import SwarmError
from shoal.api.started_node import start_node
from shoal.api.swarm import Swarm
from shoal.nearby import answers_at, running_node
from shoal.started_peer import StartedPeer
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused, NodeUnavailable
from shoal_tasks.run_memory import saved_task_files
from shoal_tasks.swarm import specs_of
from shoal_wire.errors import ManifestError
from shoal_wire.invite import LOOKS_LIKE, InviteError, decode_invite
from shoal_wire.manifest import Manifest, decode_manifest

_NO_TRAINER: Final = "disabled"
"""State of the trainer in the status of a node without one."""


def connect(
    where: str | Path | None = None,
    *,
    data_dir: str | Path | None = None,
    tasks: Sequence[str | Path] = (),
    node_flags: Sequence[str] = (),
) -> Swarm:
    """Join a swarm through a node on this machine.

    Args:
        where: A node's folder, or an invitation (`shoal1…`). Without it, the node that runs in
            the current folder's `.shoal`, if there is one.
        data_dir: With an invitation, the node's folder; by default the first free one in `.shoal`.
        tasks: Task files of your own, as `--tasks` of `shoal node`. A node that runs already
            knows its own.
        node_flags: Further flags of `shoal node`, for a node that is started here.

    Where no node runs, one is started without a trainer; it ends with `Swarm.close`.

    Raises:
        SwarmError: one line that says what to do.
    """
    invitation = where.strip() if isinstance(where, str) and where.startswith(LOOKS_LIKE) else ""
    folder = _folder(data_dir if invitation else where)
    named_twice = data_dir is not None and where is not None and not invitation
    if named_twice:
        raise SwarmError("give a folder once: as the first argument, or as data_dir")
    swarm_digest, files = _digest(invitation), [str(one) for one in tasks]
    if folder is None and not invitation:
        folder = running_node() if data_dir is None else Path(data_dir)
    if folder is not None and answers_at(folder):
        return _attach(folder, swarm_digest, files, None)
    flags = [f"--tasks={one}" for one in files]
    if folder is not None:
        flags.append(f"--data-dir={folder}")
    node = start_node(invitation, ["--role=observe", *flags, *node_flags])
    try:
        return _attach(Path(node.ready()["data_dir"]), swarm_digest, files, node)
    except BaseException:
        node.stop()
        raise


def _folder(named: str | Path | None) -> Path | None:
    return None if named is None else Path(named)


def _digest(invitation: str) -> bytes:
    """Return the digest of an invitation's swarm; empty without an invitation."""
    try:
        return decode_invite(invitation).swarm if invitation else b""
    except InviteError as error:
        raise SwarmError(str(error)) from None


def _attach(
    folder: Path,
    swarm_digest: bytes,
    task_files: Sequence[str],
    node: StartedPeer | None,
) -> Swarm:
    manifest, why_no_draw = _look(folder)
    if swarm_digest and manifest.digest != swarm_digest:
        raise SwarmError(f"the node in {folder} is in another swarm: give another data_dir")
    try:
        families = specs_of(manifest, task_files or saved_task_files(folder))
    except ManifestError as error:
        raise SwarmError(str(error)) from None
    role = m.Role.PUBLISHER if why_no_draw else m.Role.TRAINER
    client = NodeClient(folder / SOCKET_NAME, role=role)
    swarm = Swarm(
        client=client,
        manifest=manifest,
        families=families,
        data_dir=folder,
        why_no_draw=why_no_draw,
        node=node,
    )
    client.ensure()  # last, since the swarm states its leases
    return swarm


def _look(folder: Path) -> tuple[Manifest, str]:
    """Return a node's manifest, and why this program may not sample there; empty if it may.

    A node has one trainer: a second one on its socket would end the leases of the first.
    """
    path = folder / SOCKET_NAME
    client = NodeClient(path, role=m.Role.INSPECTOR)
    try:
        trainer = client.inspect("status").get("trainer") or {}
        manifest = decode_manifest(client.manifest or b"")
    except (NodeUnavailable, NodeRefused, ManifestError, ValueError) as error:
        raise SwarmError(f"the node in {folder} cannot be used: {error}") from None
    finally:
        client.close()
    if trainer.get("state") == _NO_TRAINER:
        return manifest, ""
    return manifest, (
        f"the node in {folder} has a trainer of its own: "
        "connect to another folder, or start that node with --role observe"
    )
