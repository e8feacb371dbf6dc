"""`python -m shoal.experiment`, which `shoal experiment` runs."""

from __future__ import annotations

import sys

from shoal.experiment.command import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
