"""Constants that peers share before any manifest is known: names, domains and hard limits.

A manifest may set tighter limits, never looser ones.
"""

from __future__ import annotations

from typing import Final

SCHEMA_MAJOR: Final = 2
"""Major version of the payload schema. Payloads of a newer major version are ignored."""

ENVELOPE_DOMAIN: Final = "shoal-rollouts-v1"
"""Domain separation string of the signed envelope (libp2p RFC 0002, *Signature Production*)."""

BATCH_PAYLOAD_TYPE: Final = b"/shoal/rollout-batch/1"
"""Payload type of a zstd-compressed `RolloutBatch`."""

ANNOUNCEMENT_PAYLOAD_TYPE: Final = b"/shoal/batch-announcement/1"
"""Payload type of a `BatchAnnouncement`, which is not compressed."""

TOPIC_PREFIX: Final = "/shoal/1"

MANIFEST_PROTOCOL: Final = "/shoal/manifest/1"
"""Request/response: an empty request; the manifest's exact bytes in reply."""

PEERS_PROTOCOL: Final = "/shoal/peers/1"
"""Request/response: a `PeerQuery`, which may be empty; a `PeerList` in reply."""
FULL_PROTOCOL: Final = "/shoal/full/1"
"""Sent by a peer without free slots to one that it disconnects."""

ROLLOUTS_PROTOCOL: Final = "/shoal/rollouts/1"
"""Request/response: a `RolloutRequest`; a `RolloutAnswer` in reply."""

TASKS_PROTOCOL: Final = "/shoal/tasks/1"
"""Request/response: a `TaskRequest`, a `TaskAnswer`."""

TASK_PIECE_BYTES: Final = 256 * 1024
"""Length of each piece of a task's file but the last."""

MAX_TASK_FILE_BYTES: Final = 64 * 1024 * 1024
"""Largest file of a task: the task worker holds it in memory."""

MAX_BUNDLE_FILES: Final = 16
MAX_EXAMPLES: Final = 32
MAX_EXAMPLE_BYTES: Final = 4096

MAX_HUB_ROWS_BYTES: Final = 16 * 1024
"""Longest description of rows that are on a hub."""

OFFER_PAYLOAD_TYPE: Final = b"/shoal/task-offer/1"
"""Payload type of a `TaskOffer`, which is not compressed."""
MAX_OFFER_BYTES: Final = 8192
"""An offer's whole envelope."""
MAX_OFFERS: Final = 64
"""Most offers in one answer, and most families of which it says what they earn."""
MAX_KNOWN_OFFERS: Final = 256
"""Most offers that one query names as known."""
OFFER_ID_BYTES: Final = 8

MAX_TASK_ANSWER_BYTES: Final = TASK_PIECE_BYTES + 512 * 1024
"""A `TaskAnswer`: a piece, offers, or a bundle with the digests of all pieces and all examples."""

MAX_MANIFEST_BYTES: Final = 256 * 1024
MAX_PEER_LIST_BYTES: Final = 64 * 1024
MAX_PEERS_IN_LIST: Final = 64
MAX_ADDRS_PER_PEER: Final = 8
MAX_ALLOWED_PEERS: Final = 2048
"""Longest allow list of a manifest, in peers."""
MAX_SHARDS: Final = 4096
"""Shards of one topic key (`shoal_wire.topic_keys`)."""
MAX_SHARD_NUMBER: Final = MAX_SHARDS << 48
"""Above the number of any shard, with its topic key."""
MAX_SHARDS_PER_PEER: Final = 64
"""Most shards in one query, and for one peer of a peer list."""

MAX_MESSAGE_BYTES: Final = 1_000_000
"""Largest envelope that can travel in one gossip message (py-libp2p drops above ~1 MiB)."""

WHOLE_MESSAGE_BYTES: Final = 64 * 1024
"""Largest envelope that is gossiped whole. Gossip delivers about five copies of each message, so
larger ones are announced and pulled: one copy, at three times the speed."""

MAX_ANNOUNCEMENT_BYTES: Final = 512
"""An announcement's whole envelope."""

MAX_REQUEST_BYTES: Final = 4096
"""A `RolloutRequest`."""

MAX_CHUNK_BYTES: Final = 1024 * 1024
"""Largest part of an envelope in one answer; py-libp2p's reads fail above about 6.5 MB."""

MAX_ANSWER_BYTES: Final = MAX_CHUNK_BYTES + 16 * 1024
"""A `RolloutAnswer`."""

MAX_LISTED_BATCHES: Final = 512
MAX_WHOLE_BATCHES: Final = 64
"""Most batches in one request."""

MAX_RETRY_MS: Final = 60_000

MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Largest decompressed batch; a manifest's own limit is at most this."""

MAX_GROUPS_PER_BATCH: Final = 1024
MAX_COMPLETIONS: Final = 256
MAX_COMPLETIONS_PER_BATCH: Final = 16_384
"""Most completions in all groups of a batch. Each costs a receiver microseconds, however well it
compresses."""
MAX_COMPLETION_BYTES: Final = 256 * 1024
MAX_INLINE_TASK_BYTES: Final = 64 * 1024
MAX_NAME_BYTES: Final = 200
"""Longest name on the wire: family, verifier, model."""

MAX_SEED: Final = 1 << 31
MIN_TRAINING_SEED: Final = 1 << 20
"""Seeds below this are reserved for evaluation and judges, and are not allowed in batches."""
MAX_INDEX: Final = 1 << 31
MAX_ROUND: Final = 1 << 40
MAX_SEQUENCE: Final = 1 << 62

KEPT: Final = 512
"""Entries of each cache of this package; not a limit of the protocol. Peers send the same keys,
topics and addresses again; the largest entry, a hostile peer's topics, has about 16 KiB."""

DIGEST_BYTES: Final = 32
SHORT_DIGEST_BYTES: Final = 16
