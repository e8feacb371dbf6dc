"""Fails if the checked-in protobuf modules differ from generated ones (`make check`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
SOURCES = sorted(PROTO.glob("*/v1/*.proto"))


def main() -> int:
    """Generate into a temporary folder and compare."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "grpc_tools.protoc",
                f"-I{PROTO}",
                f"--python_out={folder}",
                f"--pyi_out={folder}",
                *map(str, SOURCES),
            ],
            check=True,
        )
        made = {path.relative_to(folder): path for path in Path(folder).rglob("*_pb2.py*")}
        stale = [
            name
            for name, path in sorted(made.items())
            if path.read_bytes() != (PROTO / name).read_bytes()
        ]
    for name in stale:
        print(f"{name} is not what its source generates; run make proto", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
