"""The process that asks the router one question, and may fall ill in the node's place.

The question is the last argument, the answer a line: see `shoal_p2p.peers.router`. No seconds mean
that the router is to forget.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from shoal_base.lines import say_json
from shoal_p2p.peers import nat_pmp, upnp
from shoal_p2p.peers.forwarded import Forwarded, RouterError

MEMORY_BYTES: Final = 128 << 20
"""Address space of this process; 18 MiB are in use before anybody is asked."""
ANSWER_S: Final = 19
"""Seconds for the whole question, below those for which the node waits (`port_mapping`)."""

Forward = Callable[[int, int, float], Forwarded]
WAYS: dict[str, tuple[Forward, Callable[[int, int], None]]] = {
    # The cheapest first: two datagrams to the gateway.
    nat_pmp.NAME: (nat_pmp.forward, nat_pmp.forget),
    upnp.NAME: (upnp.forward, upnp.forget),
}


def answer(port: int, lease_s: float, held: dict[str, Any] | None) -> dict[str, Any]:
    """Answer one question. Raises RouterError."""
    way, outside = (str(held["way"]), int(held["port"])) if held else ("", port)
    if not lease_s:
        WAYS[way][1](port, outside)
        return {}
    errors = []
    for name in sorted(WAYS, key=lambda name: name != way):
        try:
            return asdict(WAYS[name][0](port, outside, lease_s))
        except RouterError as error:
            errors.append(f"{name}: {error}")
    raise RouterError("; ".join(errors))


def main() -> int:
    """Answer the question in the last argument."""
    with contextlib.suppress(ValueError):  # a system that bounds no addresses says so (macOS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # In C, where miniupnpc waits, no other way leads out. Its default is the end of the process.
    signal.alarm(ANSWER_S)
    try:
        said = answer(**json.loads(sys.argv[-1]))
    except RouterError as error:
        said = {"error": str(error)}
    say_json(said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
