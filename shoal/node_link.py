"""Shared parts of commands that talk to a running node: the socket, the swarm's families."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal_base.extras import missing_for_tasks
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused, NodeUnavailable
from shoal_p2p.data_dir import why_silent
from shoal_settings.exits import EXIT_FAILED, EXIT_NO_NODE, fail
from shoal_tasks.run_memory import saved_task_files
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import specs_of
from shoal_wire.bundles import bundles
from shoal_wire.codec import group_to_bytes
from shoal_wire.digests import group_id
from shoal_wire.errors import ManifestError
from shoal_wire.limits import MAX_NAME_BYTES
from shoal_wire.manifest import Manifest, decode_manifest
from shoal_wire.types import Digest, PolicyInfo, RolloutGroup, SamplingParams

UNKNOWN_SAMPLING = SamplingParams(temperature=0.0, top_p=1.0, top_k=0, max_new_tokens=0)
"""Sampling stated for answers of an unknown generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNode:
    """A running node that accepts groups which no trainer made."""

    command: str
    client: NodeClient
    manifest: Manifest
    families: tuple[FamilySpec, ...]

    def publish(self, groups: Sequence[RolloutGroup], *, author: str) -> int:
        """Publish groups; return how many are new to the node. Blocks until they are on disk.

        `author` is sent in place of a model's name.

        Raises:
            UsageExit: after one line.
        """
        new = 0
        for batch in bundles(groups, _num_encoded_bytes):
            ids = b"".join(group_id(group) for group in batch)
            try:
                reply = self.client.call(
                    m.Publish(
                        # Keyed by content: publishing a file again yields the same batches.
                        client_key=hashlib.sha256(b"hand-made" + ids).digest(),
                        round=0,
                        policy=PolicyInfo(
                            model_name=author, tokenizer_digest=Digest(b""), policy_version=0
                        ),
                        sampling=UNKNOWN_SAMPLING,
                        groups=batch,
                    ),
                    m.PublishReply,
                )
            except (NodeRefused, NodeUnavailable) as error:
                raise fail(self.command, str(error), EXIT_FAILED) from None
            new += len(batch) if reply.is_new else 0
        return new


def open_link(command: str, data_dir: Path) -> OpenNode:
    """Connect to the node in `data_dir`.

    Raises:
        UsageExit: there is none, or its swarm's families cannot be used here.
    """
    if (missing := missing_for_tasks()) is not None:
        raise fail(command, missing)
    client = NodeClient(data_dir / SOCKET_NAME, role=m.Role.PUBLISHER)
    if not client.ensure() or client.manifest is None:
        if (why := why_silent(data_dir)) is not None:
            raise fail(command, why, EXIT_NO_NODE)
        start = "start one with `shoal node`, or name its --data-dir"
        raise fail(command, f"no node answers in {data_dir}; {start}", EXIT_NO_NODE)
    manifest = decode_manifest(client.manifest)
    try:
        families = specs_of(manifest, saved_task_files(data_dir))
    except ManifestError as error:
        raise fail(command, str(error)) from None
    return OpenNode(command=command, client=client, manifest=manifest, families=families)


def check_author(command: str, author: str) -> str:
    """Return `author` if the wire format allows it.

    Raises:
        UsageExit: it cannot.
    """
    if (fault := fault_of_author(author)) is not None:
        raise fail(command, f"--{fault}")
    return author


def fault_of_author(author: str) -> str | None:
    """Return why the wire format refuses a model's name, in a sentence; None if it does not."""
    if author and len(author.encode()) <= MAX_NAME_BYTES and author.isprintable():
        return None
    return f"author must be 1 to {MAX_NAME_BYTES} printable bytes"


def _num_encoded_bytes(group: RolloutGroup) -> int:
    return len(group_to_bytes(group))
