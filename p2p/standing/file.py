"""The reputation on disk: `reputation.json` in the data directory, replaced whole or not at all."""

from __future__ import annotations

import logging
from pathlib import Path

from p2p.standing.reputation import Reputation
from shoal_base.files import read_at_most, set_corrupt_aside, write_atomically

log = logging.getLogger(__name__)

REPUTATION_FILE = "reputation.json"
_MAX_FILE_BYTES = 4 * 1024 * 1024


def load_reputation(path: Path, reputation: Reputation, now: float, *, wall_ms: int) -> None:
    """Fill `reputation` from `path`; blocks. A corrupt file is named, set aside and skipped."""
    try:
        raw = read_at_most(path, _MAX_FILE_BYTES)
        reputation.take(raw.decode("utf-8"), now, wall_ms=wall_ms)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("cannot read %s: %s", path, error)
    except (ValueError, KeyError, RecursionError) as error:
        aside = set_corrupt_aside(path)
        log.warning("%s is corrupt (%s): peers start neutral; kept as %s", path, error, aside)


def save_reputation(path: Path, text: str) -> None:
    """Write `text` (of `Reputation.to_json`); blocks. Raises OSError."""
    write_atomically(path, text.encode())
