"""`python -m shoal_experiment`, which `shoal experiment` runs."""

from __future__ import annotations

import sys

from shoal_experiment.command import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
