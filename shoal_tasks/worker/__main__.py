"""The task worker's process: ``python -m shoal_tasks.worker``, driven by frames on stdin."""

from __future__ import annotations

import argparse

from shoal_tasks.worker.serving import FramePipe, serve


def main() -> None:
    """Entry point of the child process."""
    parser = argparse.ArgumentParser(prog="shoal_tasks.worker")
    parser.add_argument("--parent-pid", type=int, default=None)
    arguments = parser.parse_args()
    serve(FramePipe(), arguments.parent_pid)


if __name__ == "__main__":
    main()
