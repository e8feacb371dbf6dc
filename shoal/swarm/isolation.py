"""The settings of each process of a local swarm, which is private by default.

    own settings ─┬─▶ bootstrap_settings   loopback, no mDNS, the swarm's own key
                  └─▶ node_settings        the same, and the bootstrap's address

Comparisons on one machine must not train on groups of other nodes there, which would be found by
mDNS, by a folder next to this one, or from addresses saved by an earlier run. A key prevents all
three.
"""

from __future__ import annotations

from shoal_p2p.net.swarm_key import load_or_create_swarm_key
from shoal_settings.schema import Settings
from shoal_settings.web_address import NONE

LISTEN = "/ip4/127.0.0.1/tcp/0"
KEY_FILE = "swarm.key"


def key_of_swarm(settings: Settings) -> str:
    """Return the setting `swarm_key` of the swarm's processes, and create its file if necessary.

    With `--mdns` the swarm is public, or has the key of the settings.

    Raises:
        SwarmKeyError: the file cannot be created, or holds no key.
    """
    if settings.mdns:
        return settings.swarm_key
    path = settings.data_dir / KEY_FILE
    load_or_create_swarm_key(path)
    return str(path)


def bootstrap_settings(own: Settings, swarm_key: str) -> Settings:
    """Return the settings of the bootstrap peer."""
    return own.model_copy(
        update={
            "data_dir": own.data_dir / "bootstrap",
            "listen": (LISTEN,),
            "swarm_key": swarm_key,
            "json_output": True,
            "http": NONE,
            "target_peers": max(own.nodes, own.target_peers),
        }
    )


def node_settings(own: Settings, swarm_key: str, index: int, address: str) -> Settings:
    """Return the settings of node `index`, from 1; `address` is the bootstrap's."""
    return own.model_copy(
        update={
            "data_dir": own.data_dir / node_name(index),
            "listen": (LISTEN,),
            "bootstrap": (address,),
            "swarm_key": swarm_key,
            "mdns": False,
            "keep_running": True,
            "http": NONE,
            "json_output": True,
            "seed": own.seed + index if own.seed else 0,
        }
    )


def node_name(index: int) -> str:
    """Return the name of node `index`, and of its folder."""
    return f"node-{index}"
