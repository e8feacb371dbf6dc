"""The task worker's process: ``python -m shoal_tasks.worker``, driven by frames on stdin."""

from __future__ import annotations

import argparse

from shoal_tasks.worker.serving import FramePipe, serve


def main() -> None:
    """Entry point of the child process."""
    parser = argparse.ArgumentParser(prog="shoal_tasks.worker")
    parser.add_argument("--parent-pid", type=int, default=None)
    parser.add_argument("--weak-sandbox", action="store_true")
    arguments = parser.parse_args()
    serve(FramePipe(), arguments.parent_pid, is_weak_accepted=arguments.weak_sandbox)


if __name__ == "__main__":
    main()
