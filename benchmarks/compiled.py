"""Runs a benchmark of the simulation with the rooms that it spends its time in compiled by mypyc.

    python -m benchmarks.compiled crowd 10000x600     all that follows is the benchmark's

The tree is copied to `build/compiled`, compiled there within two minutes, and run from there. What
is compiled is checked as typed, not otherwise changed: one seed is the same run either way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_TREE = Path(__file__).resolve().parent.parent
_COPY = _TREE / "build" / "compiled"
_ROOTS = {"shoal_p2p": "p2p", "shoal_lab": "lab", "shoal_wire": "proto"}
_MODULES = (
    *(
        f"p2p/shoal_p2p/gossip/{name}.py"
        for name in (
            *("blame", "control", "driver", "flood_gate", "interface", "lateness", "mesh"),
            *("meshes", "message_cache", "offers", "peers", "rpc", "settings"),
        )
    ),
    *(f"p2p/shoal_p2p/shards/{name}.py" for name in ("directory", "division", "keeper", "plan")),
    *(f"p2p/shoal_p2p/peers/{name}.py" for name in ("asking", "discovery", "hearsay", "targets")),
    *(
        f"lab/shoal_lab/simulation/{name}.py"
        for name in ("crowd", "gossip", "host", "instant_gossip", "message", "network", "requests")
    ),
    "p2p/shoal_p2p/fair/buckets.py",
    "p2p/shoal_p2p/net/interface.py",
    "proto/shoal_wire/shard_tree.py",
)
"""Rules and messages. Not what Python's own classes stand below (`bounded`), for mypyc lays those
out otherwise."""
_SETUP = """
import sys
from setuptools import setup
from mypyc.build import mypycify
roots, modules = eval(sys.argv[1]), sys.argv[2:]
setup(
    name="compiled", packages=[], package_dir={name: f"{at}/{name}" for name, at in roots.items()},
    ext_modules=mypycify(modules), script_args=["-q", "build_ext", "--inplace"],
)
"""


def compile_copy() -> None:
    """Copy what git has of the tree, and compile it there."""
    shutil.rmtree(_COPY, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=_TREE, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (_COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_TREE / name, _COPY / name)
    code = [sys.executable, "-c", _SETUP, repr(_ROOTS), *_MODULES]
    subprocess.run(code, cwd=_COPY, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    compile_copy()
    os.chdir(_COPY)
    paths = [str(_COPY), *(str(_COPY / root) for root in ("p2p", "lab", "proto", "policy"))]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.execv(sys.executable, [sys.executable, "-um", f"benchmarks.{sys.argv[1]}", *sys.argv[2:]])
