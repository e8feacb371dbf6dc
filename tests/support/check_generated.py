"""Fail when the checked-in protobuf modules are not what the sources generate (`make check`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "proto" / "shoal_wire" / "v1").glob("*.proto"))


def main() -> int:
    """Generate into a temporary folder and compare."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "grpc_tools.protoc",
                f"-I{ROOT / 'proto'}",
                f"--python_out={folder}",
                f"--pyi_out={folder}",
                *map(str, SOURCES),
            ],
            check=True,
        )
        stale = [
            path.name
            for path in sorted(Path(folder).rglob("*_pb2.py*"))
            if path.read_bytes() != (SOURCES[0].parent / path.name).read_bytes()
        ]
    for name in stale:
        print(f"{name} is not what its source generates; run make proto", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
