"""An inbound connection keeps its slot after it is gone: after some 250 over the node's life, every
new one is refused."""

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from stock import connect, peer, run, tell


async def main() -> int:
    async with peer() as (victim, _):
        for number in range(400):
            client = new_host(key_pair=create_new_key_pair())
            async with client.run(listen_addrs=[]):
                try:
                    with trio.fail_after(8):
                        await connect(client, victim)
                except Exception as error:  # noqa: BLE001 - the library refuses in many ways
                    return tell(True, f"connection {number + 1} was refused: {error!r:.120}")
                await client.close()
    return tell(False, "400 connections, one after the other, were all taken")


run(main, seconds=170, crash="shuts")
