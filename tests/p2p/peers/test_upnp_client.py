"""Any device that poses as a router costs the node one log line, whatever it sends."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
import trio

from shoal_base.children import python
from shoal_p2p.peers.upnp import MEMORY_BYTES, Forwarded, RouterError
from shoal_p2p.peers.upnp_client import UpnpClient
from tests.support.netns import available, open_lan
from tests.support.nodes import until

FOUND = Forwarded(host="9.9.9.9", port=4002, lease_s=math.inf)


def with_router(forward: str, forget: str = "") -> UpnpClient:
    """The child with a router on paper."""
    code = f"""
import os, sys, time
from shoal_p2p.peers import upnp
from shoal_p2p.peers.upnp import Forwarded, RouterError

def forward(port, outside, lease_s):
{textwrap.indent(forward, " " * 4)}

def forget(port, outside):
    {forget or "pass"}

upnp.ANSWER_S, upnp.forward, upnp.forget = 1, forward, forget
upnp.main()
"""
    return UpnpClient(python("-c", code))


GIVES_IT = "return Forwarded(host='9.9.9.9', port=4002, lease_s=float('inf'))"


async def test_what_a_router_forwards_is_renewed_where_it_is_and_given_back(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    note = f"open({str(log)!r}, 'a').write(f'{{port}}:{{outside}} ')"
    router = with_router(f"{note}\n{GIVES_IT}", note)
    await router.forget()
    assert await router.forward(4001, 60) == FOUND
    assert await router.forward(4001, 60) == FOUND
    await router.forward(5001, 60)
    await router.forget()
    await router.forget()
    assert log.read_text().split() == ["4001:4001", "4001:4002", "5001:5001", "5001:4002"]


async def test_why_it_does_not_is_one_line() -> None:
    with pytest.raises(RouterError, match=r"^not today$"):
        await with_router("raise RouterError('not today')").forward(4001, 60)


@pytest.mark.parametrize(
    "body",
    [
        "kept = bytearray(300 << 20)",
        "time.sleep(600)",
        "while True: pass",
        "raise SystemExit",
        "raise ValueError",
    ],
)
async def test_a_child_that_falls_ill_is_one_line(body: str) -> None:
    with pytest.raises(RouterError, match="no answer in time, or one too large to hold"):
        await with_router(body).forward(4001, 60)


@pytest.mark.parametrize(
    "code",
    [
        "print('no JSON')",
        "print('[]')",
        "print('{}')",
        "print('null')",
        """print('{"host": "h", "port": [], "lease_s": 1}')""",
        """print('{"host": "h", "port": 1e999, "lease_s": 1}')""",
        "print('7' * 100_000)",
        "print('[' * 4_000)",
        r"sys.stdout.buffer.write(b'\xff\n')",
    ],
)
async def test_an_answer_that_is_none_is_one_line(code: str) -> None:
    with pytest.raises(RouterError, match="sent no valid reply"):
        await UpnpClient(python("-c", f"import sys\n{code}")).forward(4001, 60)


async def test_a_child_that_cannot_be_started_is_one_line() -> None:
    with pytest.raises(RouterError, match="No such file"):
        await UpnpClient(["/nowhere/python"]).forward(4001, 60)


async def test_who_is_cancelled_leaves_no_child_and_the_terminal_is_not_its(tmp_path: Path) -> None:
    log = tmp_path / "pid"
    router = with_router(f"open({str(log)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(router.forward, 4001, 60.0)
        await until(lambda: log.exists() and bool(log.read_text()))
        child = psutil.Process(int(log.read_text()))
        assert os.getpgid(child.pid) == child.pid, "Ctrl-C is not for it"
        nursery.cancel_scope.cancel()
    assert not child.is_running()


ENDLESS = """
import socket, threading
ME = "10.77.0.1"
found = b"HTTP/1.1 200 OK\\r\\nST: urn:schemas-upnp-org:device:InternetGatewayDevice:1\\r\\n"
found += b"USN: x\\r\\nLOCATION: http://10.77.0.1:5000/all.xml\\r\\n\\r\\n"

def send(connection):
    left = 300
    try:
        connection.recv(4000)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        while left := left - 1:
            connection.sendall(b"100000\\r\\n" + bytes(1 << 20) + b"\\r\\n")
    except OSError:
        pass

def serve(listener):
    while True:
        threading.Thread(target=send, args=(listener.accept()[0],), daemon=True).start()

threading.Thread(target=serve, args=(socket.create_server((ME, 5000)),), daemon=True).start()
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("", 1900))
group = socket.inet_aton("239.255.255.250") + socket.inet_aton(ME)
heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
print("ready", flush=True)
while True:
    question, asker = heard.recvfrom(2000)
    if b"M-SEARCH" in question:
        heard.sendto(found, asker)
"""
ASK = """
import resource, trio
from shoal_p2p.peers.upnp_client import UpnpClient
from shoal_p2p.peers.upnp import RouterError
try:
    trio.run(UpnpClient().forward, 4001, 60.0)
except RouterError as error:
    print(str(error).count("\\n"))
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(own.split()[1]) * 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="network namespaces need root and iproute2")
def test_a_router_that_sends_without_end_has_little_memory() -> None:
    """300 MB here; without a bound the node held all that came."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with open_lan() as lan:
        _, theirs = lan.host("a")
        _, ours = lan.host("a")
        for prefix in (theirs, ours):
            subprocess.run(
                [*prefix, "ip", "route", "add", "239.0.0.0/8", "dev", "eth0"], check=True
            )
        with subprocess.Popen(
            [*theirs, sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True
        ) as router:
            try:
                assert router.stdout is not None and router.stdout.readline() == "ready\n"
                done = subprocess.run(
                    [*ours, sys.executable, "-c", ASK],
                    env=env, capture_output=True, text=True, check=True,
                )  # fmt: skip
            finally:
                router.kill()
    more_lines, own_bytes, childs_bytes = map(int, done.stdout.split())
    assert more_lines == 0 and not done.stderr
    assert own_bytes < MEMORY_BYTES / 2 and childs_bytes < MEMORY_BYTES


@pytest.mark.skipif(not available(), reason="network namespaces need root and iproute2")
def test_a_network_without_routes_is_one_line() -> None:
    with open_lan() as lan:
        _, inside = lan.host("a")
        ask = "from shoal_p2p.peers.upnp import forward\nforward(4001, 4001, 60)"
        done = subprocess.run(
            [*inside, sys.executable, "-c", ask],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.stderr.endswith("RouterError: no router can be asked: Network is unreachable\n")
