"""Runs a benchmark of the simulation with its hottest packages compiled by mypyc.

    python -m benchmarks.compiled crowd 10000x600     all that follows is the benchmark's

A copy of the tree is compiled (two minutes), run, and removed. One seed gives the same run,
compiled or not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_TREE = Path(__file__).resolve().parent.parent
_ROOTS = {"shoal_p2p": "p2p", "shoal_lab": "lab", "shoal_wire": "proto"}
_MODULES = (
    *(
        f"p2p/shoal_p2p/gossip/{name}.py"
        for name in (
            *("control", "delivery_lag", "driver", "duplicate_tracker", "ihave"),
            *("interface", "mesh", "meshes", "message_cache", "peers", "rate_limiter"),
            *("rpc", "settings"),
        )
    ),
    *(f"p2p/shoal_p2p/shards/{name}.py" for name in ("depth", "directory", "keeper", "plan")),
    *(
        f"p2p/shoal_p2p/peers/{name}.py"
        for name in ("address_policy", "discovery", "exchange_schedule", "targets")
    ),
    *(
        f"lab/shoal_lab/simulation/{name}.py"
        for name in ("crowd", "gossip", "host", "instant_gossip", "message", "network", "requests")
    ),
    "p2p/shoal_p2p/fair/buckets.py",
    "p2p/shoal_p2p/net/interface.py",
    "proto/shoal_wire/shard_tree.py",
)
"""Rules and messages, without the base classes of interpreted classes (`bounded`): mypyc gives
those another memory layout."""
_SETUP = """
import json
import sys
from setuptools import setup
from mypyc.build import mypycify
roots, modules = json.loads(sys.argv[1]), sys.argv[2:]
setup(
    name="compiled", packages=[], package_dir={name: f"{at}/{name}" for name, at in roots.items()},
    ext_modules=mypycify(modules), script_args=["-q", "build_ext", "--inplace"],
)
"""


def compile_copy(copy: Path) -> None:
    """Copy the tree's files that git tracks, and compile the copy."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=_TREE, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_TREE / name, copy / name)
    code = [sys.executable, "-c", _SETUP, json.dumps(_ROOTS), *_MODULES]
    subprocess.run(code, cwd=copy, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    with TemporaryDirectory(prefix="shoal-compiled-") as place:
        compile_copy(Path(place))
        roots = [place, *(f"{place}/{root}" for root in ("p2p", "lab", "proto", "policy"))]
        played = subprocess.run(
            [sys.executable, "-um", f"benchmarks.{sys.argv[1]}", *sys.argv[2:]],
            cwd=place,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
            check=False,
        )
    sys.exit(played.returncode)
