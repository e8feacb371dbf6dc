"""`read_exactly` gives up after a hundred partial reads and calls that a closed connection: a
message of noise that a slow link brings by the byte, an answer of megabytes by the 64 KiB."""

import trio
from libp2p.io.exceptions import IncompleteReadError
from libp2p.io.utils import read_exactly
from stock import run, tell


class ByTheByte:
    """A connection that is not closed."""

    async def read(self, _n: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return b"x"


async def main() -> int:
    try:
        await read_exactly(ByTheByte(), 200)
    except IncompleteReadError as error:
        return tell(True, f"{error} (nothing was closed)")
    return tell(False, "200 bytes in 200 pieces are read")


run(main)
