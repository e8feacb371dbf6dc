"""TCP proxies on loopback: delays, dropped connections, partitions. Started by `delivery`.

One JSON object on the command line: `targets` (port and whether the link crosses the parting),
`delay_s` each way, `drops_per_minute` (share of the connections), `seed`. Prints the port for each
target in order; then each line of standard input is `part` or `heal`.
"""

from __future__ import annotations

import json
import random
import sys
from functools import partial
from types import TracebackType
from typing import Any, Self

import trio

from benchmarks.harness import Child

_CHUNK = 1 << 16
_MAX_WAITING = 256


class _Links:
    """All links of this process."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.delay_s = float(config["delay_s"])
        self.drops_per_minute = float(config["drops_per_minute"])
        self.rng = random.Random(config["seed"])
        self.flowing = trio.Event()
        self.flowing.set()

    async def carry(self, target: int, crosses: bool, client: trio.SocketStream) -> None:
        """Serve one connection until it ends or is dropped."""
        rate = self.drops_per_minute / 60
        life = self.rng.expovariate(rate) if rate else float("inf")
        try:
            with trio.move_on_after(life):
                server = await trio.open_tcp_stream("127.0.0.1", target)
                async with server, trio.open_nursery() as nursery:
                    for ends in ((client, server), (server, client)):
                        nursery.start_soon(self._pass_on, *ends, crosses, nursery)
        except OSError:
            pass
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(client)

    async def _pass_on(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        crosses: bool,
        nursery: trio.Nursery,
    ) -> None:
        send, receive = trio.open_memory_channel[tuple[float, bytes]](_MAX_WAITING)
        nursery.start_soon(self._deliver, receive, sink, crosses, nursery)
        async with send:
            try:
                while data := await source.receive_some(_CHUNK):
                    await send.send((trio.current_time() + self.delay_s, data))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def _deliver(
        self,
        receive: trio.MemoryReceiveChannel[tuple[float, bytes]],
        sink: trio.SocketStream,
        crosses: bool,
        nursery: trio.Nursery,
    ) -> None:
        try:
            async for due, data in receive:
                await trio.sleep_until(due)
                if crosses:
                    await self.flowing.wait()
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        nursery.cancel_scope.cancel()


async def main(config: dict[str, Any]) -> None:
    """Serve until standard input ends."""
    links = _Links(config)
    async with trio.open_nursery() as nursery:
        ports = []
        for target, crosses in config["targets"]:
            (listener,) = await nursery.start(
                partial(trio.serve_tcp, host="127.0.0.1"),
                partial(links.carry, target, crosses),
                0,
            )
            ports.append(listener.socket.getsockname()[1])
        print(json.dumps(ports), flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            if line.strip() == "part":
                links.flowing = trio.Event()
            else:
                links.flowing.set()
        nursery.cancel_scope.cancel()


class Proxies:
    """The process of proxies, seen from the benchmark. Call it with the ports by process."""

    def __init__(self, *, delay_s: float = 0.0, drops_per_minute: float = 0.0) -> None:
        self._settings = {"delay_s": delay_s, "drops_per_minute": drops_per_minute, "seed": 4}
        self._process: Child | None = None

    def __call__(self, ports: list[list[int]]) -> list[dict[str, int]]:
        """Start; the first process of nodes and the bootstrap are one side of a parting."""
        sides = [number == 1 for number in range(len(ports))]
        targets = [
            [port, here != there]
            for here in sides
            for there, group in zip(sides, ports, strict=True)
            for port in group
        ]
        config = {**self._settings, "targets": targets}
        self._process = Child("link_proxies", json.dumps(config))
        found = iter(json.loads(self._process.line()))
        return [{str(port): next(found) for group in ports for port in group} for _ in sides]

    def part(self) -> None:
        """Let nothing pass between the sides."""
        self._say("part")

    def heal(self) -> None:
        """Let it pass again."""
        self._say("heal")

    def _say(self, line: str) -> None:
        assert self._process is not None
        self._process.say(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.close()


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[1]))
