"""Settings of a peer: its folder, addresses, swarm, and size limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from shoal_base.ranges import Range
from shoal_settings.accept_tasks import ASK, parse_accept_rule
from shoal_settings.key import (
    Size,
    auto_or_number,
    checked,
    key,
    of_peers,
    of_swarms,
    range_of,
    rule_of,
)
from shoal_wire.base58 import is_peer_id_text
from shoal_wire.limits import MAX_SHARDS, MAX_SHARDS_PER_PEER

DEFAULT_LISTEN = "/ip4/0.0.0.0/tcp/0"
TASK_PRESETS = ("easy", "easy-paper", "paper", "chat-1", "chat", "games-1", "games", "none")
TASK_FILE_SUFFIX = ".toml"


def _multiaddresses(value: tuple[str, ...]) -> None:
    for address in value:
        if not address.startswith("/") or any(c.isspace() or c == "," for c in address):
            raise ValueError(f"{address!r} is not a multiaddress like /ip4/127.0.0.1/tcp/4001")


def addresses_of_peers(value: tuple[str, ...]) -> None:
    _multiaddresses(value)
    for address in value:
        if "/p2p/" not in address:
            raise ValueError(
                f"{address!r} does not end in /p2p/ID; copy the line that the peer printed"
            )


def _peer_ids(value: tuple[str, ...]) -> None:
    for peer in value:
        if not is_peer_id_text(peer):
            raise ValueError(f"{peer!r} is not a peer id; `shoal status` shows a node's own")


def _tasks(value: tuple[str, ...]) -> None:
    presets = [one for one in value if one in TASK_PRESETS]
    files = [one for one in value if one.endswith(TASK_FILE_SUFFIX)]
    if len(presets) + len(files) < len(value):
        raise ValueError(f"must be a preset ({', '.join(TASK_PRESETS)}) or a task file, FILE.toml")
    if len(presets) > 1:
        raise ValueError("name one preset at most")
    if not value:
        raise ValueError("name a preset or a task file; none is a preset without tasks")


def _digest(value: str) -> None:
    if value != "none" and not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ValueError("must be 64 hex digits, in small letters, or none")


class NodeSettings(BaseModel):
    """Settings that every peer reads. Frozen; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    data_dir: Path = key(
        Path(".shoal/node"),
        "node bootstrap trainer swarm debug",
        "Folder for identity, buffer, checkpoints and socket. Other models, tasks and swarms "
        "than the default's have another default: .shoal/node-smollm2-chat-1. Each node of a "
        "machine needs a folder of its own.",
        instead={
            "bootstrap": "Folder for its identity, the peers that it has met, and its socket.",
            "judge": "Folder for its identity, its records, and its socket.",
            "trainer": "Folder of its node, with the socket, and for checkpoints and metrics. "
            "Other models and tasks than the default's have another default: "
            ".shoal/node-smollm2-chat-1.",
            "swarm": "Folder of the swarm: in it one for the bootstrap peer and one for each node.",
        },
    )
    new_run: bool = key(
        False,
        "node bootstrap trainer swarm",
        "Take another swarm, or other tasks, than the last run in this folder had: the weights "
        "stay, rounds, curve and every statistic start again (what was there moves to earlier-1, "
        "earlier-2 …). It also follows a bootstrap that is in another swarm than before.",
        instead={
            "bootstrap": "Be of another swarm, or have other tasks, than the last run in this "
            "folder.",
            "judge": "Be of another swarm than the last run in this folder.",
            "trainer": "Take other tasks, or another swarm, than the last run in this folder had: "
            "the weights stay, rounds, curve and every statistic start again (what was there moves "
            "to earlier-1, earlier-2 …).",
        },
    )
    # Network
    listen: Annotated[tuple[str, ...], Field(min_length=1), checked(_multiaddresses)] = of_peers(
        (DEFAULT_LISTEN,), "Multiaddress to listen on; repeatable. Port 0 picks a free port."
    )
    bootstrap: Annotated[tuple[str, ...], checked(addresses_of_peers)] = of_peers(
        (), "Multiaddress of a bootstrap peer, ending in /p2p/ID; repeatable."
    )
    mdns: bool = of_swarms(
        True,
        "Look for peers on this machine and the local network: data directories side by side, "
        "mDNS.",
        instead={
            "swarm": "Let other nodes of this machine and the local network join; off unless "
            "asked for."
        },
    )
    target_peers: Annotated[int, Range("peers", 1, 1000)] = of_peers(
        12, "Connections that discovery tries to hold."
    )
    max_connections: Annotated[int, Range("connections", 2, 10_000)] = of_peers(
        256,
        "Connections beyond which new ones are refused. One network may have a quarter of them.",
    )
    relay: bool = of_peers(
        False,
        "Relay connections for peers that cannot be dialled (circuit relay v2): at most a quarter "
        "of `max_connections`.",
    )
    relay_client: Literal["auto", "on", "off"] = of_peers(
        "auto",
        "Be reachable through relays among the peers: auto (where peers cannot dial this one), "
        "on or off.",
    )
    announce: tuple[str, ...] = of_peers(
        (),
        "Multiaddress, without /p2p/ID, that this peer gives to others in place of its own "
        "interfaces' addresses; repeatable.",
    )
    port_mapping: bool = of_peers(
        True,
        "Ask the router (UPnP) to forward the listening port if this machine has only "
        "private addresses; undone at the end.",
    )
    swarm_key: str = of_peers(
        "none",
        "File with the pre-shared key of a private swarm, in the form of kubo's swarm.key; with "
        "none the swarm is public.",
    )
    # Swarm
    swarm_name: str = of_swarms(
        "shoal",
        "Name of the swarm that this peer starts or expects.",
        instead={"swarm": "Name of the swarm."},
    )
    swarm_id: Annotated[str, checked(_digest)] = key(
        "none",
        "node",
        "The only swarm that this node joins, by its manifest's digest (64 hex digits; "
        "`shoal status` shows it); none joins the swarm of the bootstrap.",
    )
    tasks: Annotated[tuple[str, ...], checked(_tasks)] = key(
        ("easy",),
        "node bootstrap swarm trainer",
        "Tasks of a swarm that this peer starts: a preset (easy, easy-paper, paper, chat-1, "
        "chat, games-1, games, or none) and task files of your own (FILE.toml); repeatable.",
        instead={
            "swarm": "Tasks: a preset (easy, easy-paper, paper, chat-1, chat, games-1, games, or "
            "none) and task files of your own (FILE.toml); repeatable.",
            "trainer": "Tasks, with `alone`: a preset (easy, easy-paper, paper, chat-1, chat, "
            "games-1, games, or none) and task files of your own (FILE.toml); repeatable. With a "
            "node, name the task files that its swarm has.",
        },
    )
    accept_tasks: Annotated[str, checked(parse_accept_rule)] = key(
        ASK,
        "node",
        "Tasks of the swarm to fetch from peers where their files are not here: ask, none, or a "
        "size and the names of those whose code may run, such as 20MB,words; from:PEER also takes "
        "what that member offers while the node runs.",
    )
    weak_sandbox: bool = key(
        False,
        "node bootstrap swarm trainer",
        "Run Python files of task files also where this machine allows no wall around them.",
    )
    max_age_seconds: Annotated[int, Range("s", 1, 30 * 86_400)] = of_swarms(
        3600, "Age at which a rollout of a swarm started here is stale."
    )
    inline_tasks: bool = of_swarms(
        False, "A swarm started here also takes questions that people write, with their answers."
    )
    allow_peers: Annotated[tuple[str, ...], checked(_peer_ids)] = of_peers(
        (), "Peer id that may connect to a swarm started here; repeatable. None admits every peer."
    )
    shards: Annotated[int, Range("shards", 1, MAX_SHARDS)] = of_swarms(
        1,
        "Topics among which a swarm started here spreads its publishers: about one for every "
        "16 nodes it may grow to.",
    )
    subscribe_shards: Annotated[str, auto_or_number(MAX_SHARDS_PER_PEER)] = of_swarms(
        "auto",
        "Shards to listen to: auto (as many as the trainer's draws need) or a number from 0 to 64.",
        instead={
            "bootstrap": "Shards to listen to: auto (the only one; of several, none) or a number "
            "from 0 to 64.",
            "judge": "",
            "swarm": "Shards that each node listens to: auto (as many as its draws need) or a "
            "number from 0 to 64, then the bootstrap peer's, too.",
        },
    )
    # Buffer
    buffer_bytes: Annotated[Size, Range("bytes", 128 << 10, 1 << 50)] = key(
        64 * 1024 * 1024,
        "node swarm",
        "Size limit of external groups in the replay buffer, such as 64MiB; it holds one group for "
        "each 16 KiB.",
    )
    publisher_sampling: Literal["weighted", "uniform"] = key(
        "weighted",
        "node swarm",
        "How external groups are sampled: each network equally, then its publishers by how useful "
        "they were here (weighted), or all publishers equally (uniform).",
    )
    archive_bytes: Annotated[Size, Range("bytes", 0, 1 << 50)] = key(
        256 * 1024 * 1024,
        "node swarm",
        "Size limit of the batches stored for `shoal export data`, such as 2GB; 0 stores none.",
    )

    @property
    def task_preset(self) -> str:
        """Name of the preset in `tasks`; `none` if there is none."""
        return next((one for one in self.tasks if one in TASK_PRESETS), "none")

    @property
    def task_files(self) -> tuple[str, ...]:
        """Paths of the task files in `tasks`."""
        return tuple(one for one in self.tasks if one not in TASK_PRESETS)

    @field_validator("*", mode="wrap")
    @classmethod
    def _in_its_range(
        cls, value: Any, read: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        """Refuse a number outside its range, and `rounds = true`, which would count as 1."""
        field = cls.model_fields[str(info.field_name)]
        allowed = range_of(field)
        if allowed is None:
            return read(value)
        number = value if isinstance(value, bool) else read(value)
        if not allowed.has(number, field.annotation):
            raise ValueError(rule_of(field))
        return number

    @field_validator("data_dir", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """Refuse the empty path, which would mean the current folder."""
        if isinstance(value, str) and not value.strip():
            raise ValueError("is empty; . is the folder you are in")
        return value

    @field_validator("listen", "bootstrap", "announce", "tasks", "allow_peers", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """Accept one string with commas, as an environment variable gives it."""
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value
