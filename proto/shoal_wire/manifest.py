"""The swarm manifest: the rules that peers must agree on. Its digest identifies the swarm."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from google.protobuf.message import DecodeError

from shoal_wire import limits
from shoal_wire.base58 import is_peer_id_text
from shoal_wire.digests import sha256
from shoal_wire.errors import ManifestError
from shoal_wire.fields import Wires
from shoal_wire.shard_tree import MAX_DEPTH, first_of, path_to
from shoal_wire.topic_keys import (
    COMMON_KEY,
    family_key,
    key_of_digest,
    numbered,
    split_number,
)
from shoal_wire.types import Digest, PeerId, Task
from shoal_wire.v1 import swarm_pb2 as pb

_MAX_FAMILIES = 256
_MAX_CONFIG_BYTES = 16 * 1024
_ANSWER_FORMATS = ("plain", "tagged")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFamily:
    """A task family with its configuration, as in the manifest."""

    name: str
    generator: str
    """Data set of the task source."""
    config_json: str
    """Canonical JSON of the generator's configuration."""
    weight: float
    verifier: str
    verifier_version: str
    answer_format: str
    """``plain`` or ``tagged``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmRules:
    """The agreed limits. Defaults suit small models; `shoal_wire.limits` bounds each."""

    min_completions: int = 2
    max_completions: int = 64
    max_message_bytes: int = 262_144
    max_batch_bytes: int = 2_097_152
    """Decompressed."""
    max_completion_bytes: int = 32_768
    max_age_seconds: int = 3600
    max_future_seconds: int = 120
    """Clock difference that is still accepted."""
    shard_count: int = 1
    allow_inline_tasks: bool = False
    allowed_peers: tuple[PeerId, ...] = ()
    """The only peers that may connect, ascending; empty admits every peer."""

    @property
    def max_envelope_bytes(self) -> int:
        """Largest sealed batch: incompressible data grows by at most 1/256, plus a header."""
        return self.max_batch_bytes + self.max_batch_bytes // 256 + 1024

    @property
    def max_whole_bytes(self) -> int:
        """Largest envelope to gossip whole; a larger one is announced."""
        return min(self.max_message_bytes, limits.WHOLE_MESSAGE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A decoded manifest with the exact bytes that its digest covers."""

    swarm_name: str
    families: tuple[TaskFamily, ...]
    rules: SwarmRules
    raw: bytes
    digest: Digest
    """32 bytes."""
    keys: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """Family name to its topic key (`shoal_wire.topic_keys`)."""

    def __post_init__(self) -> None:
        keys = {
            one.name: family_key(one.generator, one.verifier, one.config_json)
            for one in self.families
        }
        object.__setattr__(self, "keys", keys)

    def with_families(self, families: Iterable[TaskFamily]) -> Manifest:
        """Return this manifest with more families, which a node has added for itself.

        `raw` and `digest` stay: the swarm, and what is sent to newcomers, are the same.
        """
        return replace(self, families=(*self.families, *families))

    def key_of(self, task: Task) -> int:
        """Return the topic key of a batch with this task."""
        if task.inline is not None or self.keys.get(task.family) == COMMON_KEY:
            return COMMON_KEY
        return key_of_digest(task.config_digest)

    @property
    def short_name(self) -> str:
        """The digest's first 12 hex digits, which distinguish swarms for people."""
        return self.digest.hex()[:12]

    def topic(self, shard: int) -> str:
        """Return the gossip topic of the shard of this number."""
        key, local = split_number(shard)
        family = f"{key:012x}/" if key else ""
        return f"{limits.TOPIC_PREFIX}/{self.digest.hex()}/rollouts/{family}{local}"

    def topics(self) -> tuple[str, ...]:
        """Return every topic of the swarm; for a self-dividing swarm, the undivided ones."""
        return tuple(
            self.topic(shard)
            for key in sorted(set(self.keys.values()))
            for shard in numbered(key, range(self.rules.shard_count))
        )

    def shards_of(self, topics: tuple[str, ...]) -> tuple[int, ...]:
        """Return the shards whose topics are among these, in ascending order."""
        most = first_of(MAX_DEPTH + 1) if self.divides else self.rules.shard_count
        return _shards_of(self.digest, most, topics)

    @property
    def divides(self) -> bool:
        """True if the swarm's only shard divides itself as traffic grows."""
        return self.rules.shard_count == 1

    def path(self, peer_id: str, key: int = COMMON_KEY) -> tuple[int, ...]:
        """Return the shards of a key on which `peer_id` may publish, the largest first."""
        local = _path_of(peer_id) if self.divides else (self.shard_of(peer_id),)
        return numbered(key, local) if key else local

    def is_of(self, peer_id: str, shards: Collection[int]) -> bool:
        """Return whether batches of `peer_id`, of any family, belong to one of `shards`."""
        locals_ = {split_number(shard)[1] for shard in shards}
        return any(shard in locals_ for shard in self.path(peer_id))

    def shard_of(self, peer_id: str) -> int:
        """Return the shard of a tree on which `peer_id` publishes, before any division."""
        if self.rules.shard_count == 1:
            return 0
        return int.from_bytes(sha256(peer_id.encode())[:8], "big") % self.rules.shard_count


_TOPIC_END = re.compile(r"(?:(?P<key>[0-9a-f]{12})/)?(?P<shard>0|[1-9][0-9]{0,3})", re.ASCII)


# The node checks the subscriptions of each of its peers every second.
@lru_cache(maxsize=limits.KEPT)
def _shards_of(digest: Digest, most: int, topics: tuple[str, ...]) -> tuple[int, ...]:
    found: list[int] = []
    head = f"{limits.TOPIC_PREFIX}/{digest.hex()}/rollouts/"
    for topic in topics:
        # One spelling only: "01", "+1" and digits of other scripts are other topics.
        named = _TOPIC_END.fullmatch(topic[len(head) :]) if topic.startswith(head) else None
        if named is None or int(named["shard"]) >= most:
            continue
        key = int(named["key"] or "0", 16)
        if named["key"] is None or key:
            found.extend(numbered(key, [int(named["shard"])]))
    return tuple(sorted(found))


# Each message asks for its publisher's.
@lru_cache(maxsize=limits.KEPT)
def _path_of(peer_id: str) -> tuple[int, ...]:
    return path_to(int.from_bytes(sha256(peer_id.encode())[:2], "big") >> (16 - MAX_DEPTH))


_FAMILY = Wires().of(TaskFamily)
_RULES = Wires().of(SwarmRules)


def make_manifest(
    swarm_name: str, families: tuple[TaskFamily, ...], rules: SwarmRules | None = None
) -> Manifest:
    """Return the manifest with these contents.

    Raises:
        ManifestError: a value that peers would refuse.
    """
    rules = rules or SwarmRules()
    try:
        message = pb.SwarmManifest(
            schema_major=limits.SCHEMA_MAJOR,
            swarm_name=swarm_name,
            families=[_FAMILY.write(family) for family in families],
            **_RULES.write(rules),
        )
    except (TypeError, ValueError) as error:
        # Not a value of the field's type: negative, too large, a lone surrogate.
        raise ManifestError(f"manifest cannot be written: {error}") from None
    return decode_manifest(message.SerializeToString(deterministic=True))


def decode_manifest(raw: bytes, *, expected_digest: bytes | None = None) -> Manifest:
    """Decode and check a manifest, from a file or from a peer.

    Raises:
        ManifestError: it cannot be used; the message names the field.
    """
    if len(raw) > limits.MAX_MANIFEST_BYTES:
        raise ManifestError(f"manifest of {len(raw)} bytes is over {limits.MAX_MANIFEST_BYTES}")
    digest = sha256(raw)
    if expected_digest is not None and digest != expected_digest:
        raise ManifestError(
            f"manifest digest is {digest.hex()[:12]}, expected {expected_digest.hex()[:12]}"
        )
    try:
        message = pb.SwarmManifest.FromString(raw)
    except DecodeError:
        raise ManifestError("manifest does not parse") from None
    if message.schema_major != limits.SCHEMA_MAJOR:
        raise ManifestError(
            f"manifest schema {message.schema_major} is not {limits.SCHEMA_MAJOR}: "
            "upgrade shoal or ask the swarm to"
        )
    families = tuple(family_from_pb(family) for family in message.families)
    _check_name("swarm_name", message.swarm_name)
    if not 1 <= len(families) <= _MAX_FAMILIES:
        raise ManifestError(f"manifest has {len(families)} task families")
    if len({family.name for family in families}) != len(families):
        raise ManifestError("manifest names a task family twice")
    return Manifest(
        swarm_name=message.swarm_name,
        families=families,
        rules=_rules_from_pb(message),
        raw=raw,
        digest=digest,
    )


def family_to_pb(family: TaskFamily) -> pb.TaskFamily:
    """Return the message of a family. Raises TypeError, ValueError: not the field's type."""
    return pb.TaskFamily(**_FAMILY.write(family))


def family_from_pb(message: pb.TaskFamily) -> TaskFamily:
    """Return the family of a message. Raises `ManifestError`: a field that peers would refuse."""
    for name in ("name", "generator", "verifier", "verifier_version"):
        _check_name(f"family {name}", getattr(message, name))
    if not math.isfinite(message.weight) or message.weight <= 0:
        raise ManifestError(f"family {message.name}: weight must be a positive number")
    if message.answer_format not in _ANSWER_FORMATS:
        raise ManifestError(f"family {message.name}: unknown answer format")
    _check_config(message.name, message.config_json)
    family: TaskFamily = _FAMILY.read(message)
    return family


def _check_config(family: str, config_json: str) -> None:
    if len(config_json.encode()) > _MAX_CONFIG_BYTES:
        raise ManifestError(f"family {family}: configuration is too long")
    try:
        config = json.loads(config_json)
    except (ValueError, RecursionError):
        raise ManifestError(f"family {family}: configuration is not JSON") from None
    if not isinstance(config, dict):
        raise ManifestError(f"family {family}: configuration is not a JSON object")


def _check_name(field: str, value: str) -> None:
    if not value or len(value.encode()) > limits.MAX_NAME_BYTES or not value.isprintable():
        raise ManifestError(f"{field} must be 1 to {limits.MAX_NAME_BYTES} printable bytes")


def _rules_from_pb(message: pb.SwarmManifest) -> SwarmRules:
    bounds = {
        "min_completions": (1, limits.MAX_COMPLETIONS),
        "max_completions": (1, limits.MAX_COMPLETIONS),
        "max_message_bytes": (1024, limits.MAX_MESSAGE_BYTES),
        "max_batch_bytes": (1024, limits.MAX_BATCH_BYTES),
        "max_completion_bytes": (1, limits.MAX_COMPLETION_BYTES),
        "max_age_seconds": (1, 30 * 86_400),
        "max_future_seconds": (0, 86_400),
        "shard_count": (1, limits.MAX_SHARDS),
    }
    values = {name: getattr(message, name) for name in bounds}
    for name, (low, high) in bounds.items():
        if not low <= values[name] <= high:
            raise ManifestError(f"{name} is {values[name]}, must be {low} to {high}")
    if values["min_completions"] > values["max_completions"]:
        raise ManifestError("min_completions is over max_completions")
    return SwarmRules(
        **values,
        allow_inline_tasks=message.allow_inline_tasks,
        allowed_peers=_allowed_from_pb(message.allowed_peers),
    )


def _allowed_from_pb(peers: Sequence[str]) -> tuple[PeerId, ...]:
    if len(peers) > limits.MAX_ALLOWED_PEERS:
        raise ManifestError(
            f"allowed_peers has {len(peers)} peers, at most {limits.MAX_ALLOWED_PEERS} may be"
        )
    for peer in peers:
        if not is_peer_id_text(peer):
            raise ManifestError(f"allowed_peers: {peer[:64]!r} is not a peer id")
    if list(peers) != sorted(set(peers)):
        raise ManifestError("allowed_peers is not in ascending order, or names a peer twice")
    return tuple(PeerId(peer) for peer in peers)
