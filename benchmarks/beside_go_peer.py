"""One kubo node in this process, controlled by JSON lines. Started by `beside_go`."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TOPIC = b"beside"
_POLL_S = 0.05


class Kubo:
    """The node, with a subscription that is read as it fills."""

    def __init__(self, library: str, home: str, port: int) -> None:
        Path(home).mkdir()
        os.chdir(home)  # where the library writes its log
        self._go = ctypes.CDLL(library)
        for name in ("GetNodeID", "PubSubNextMessage", "PubSubPeers"):
            getattr(self._go, name).restype = ctypes.c_void_p
        self._go.PubSubSubscribe.restype = ctypes.c_longlong
        self._go.PubSubNextMessage.argtypes = [ctypes.c_longlong]
        self._go.FreeString.argtypes = [ctypes.c_void_p]
        self._home = home.encode()
        assert self._go.CreateRepo(self._home) >= 0
        _configure(Path(home) / "config", port)
        self._go.RunNode(self._home)
        name = self._text(self._go.GetNodeID(self._home)).decode()
        self.address = f"/ip4/127.0.0.1/tcp/{port}/p2p/{name}"
        self._me = name.encode()
        self._subscription = self._go.PubSubSubscribe(self._home, _TOPIC)
        self._num_received = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _text(self, pointer: int | None) -> bytes:
        """Return a Go string, and free it."""
        if not pointer:
            return b""
        text = ctypes.string_at(pointer)
        self._go.FreeString(pointer)
        return text

    def _listen(self) -> None:
        while True:
            message = self._text(self._go.PubSubNextMessage(self._subscription))
            if not message:
                time.sleep(_POLL_S)
            elif self._me not in message:
                self._num_received += 1

    def connect(self, address: str) -> int:
        """Connect; return 0 on success."""
        return int(self._go.ConnectToPeer(self._home, address.encode()))

    def known(self) -> int:
        """Return how many other peers are subscribed."""
        return len(json.loads(self._text(self._go.PubSubPeers(self._home, _TOPIC)) or b"[]") or ())

    def publish(self, every_s: float, seconds: float, first_s: float, num_bytes: int) -> int:
        """Publish at a pace; return how many messages."""
        start = time.monotonic() + 0.5 + first_s
        count = int(seconds / every_s)
        for number in range(count):
            time.sleep(max(0.0, start + number * every_s - time.monotonic()))
            data = os.urandom(num_bytes)
            self._go.PubSubPublish(self._home, _TOPIC, data, num_bytes)
        return count

    def heard(self) -> int:
        """Return how many messages of other peers have arrived."""
        return self._num_received

    def cpu_s(self) -> float:
        """Return the CPU seconds of this process."""
        return time.process_time()


def _configure(path: Path, port: int) -> None:
    """Switch off everything except TCP with noise, and gossip."""
    config = json.loads(path.read_text())
    config["Addresses"]["Swarm"] = [f"/ip4/127.0.0.1/tcp/{port}"]
    config["Bootstrap"] = []
    config["Discovery"]["MDNS"]["Enabled"] = False
    config["Routing"] = {"Type": "none"}
    config["Pubsub"] = {**config.get("Pubsub", {}), "Enabled": True}
    config["AutoNAT"] = {"ServiceMode": "disabled"}
    config["Reprovider"] = {"Interval": "0"}
    config["Swarm"] = {
        **config["Swarm"],
        "AddrFilters": None,
        "DisableNatPortMap": True,
        "RelayClient": {"Enabled": False},
        "RelayService": {"Enabled": False},
        "Transports": {
            "Network": {"QUIC": False, "Websocket": False, "WebTransport": False, "Relay": False},
            "Security": {"TLS": False},
        },
    }
    path.write_text(json.dumps(config))


def main() -> None:
    """Run the node until standard input ends."""
    kubo = Kubo(**json.loads(sys.argv[1]))
    print(json.dumps({"address": kubo.address}), flush=True)
    commands: dict[str, Callable[..., Any]] = {
        "connect": kubo.connect,
        "known": kubo.known,
        "publish": kubo.publish,
        "heard": kubo.heard,
        "cpu_s": kubo.cpu_s,
    }
    for line in sys.stdin:
        do, *arguments = json.loads(line)
        print(json.dumps(commands[do](*arguments)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
