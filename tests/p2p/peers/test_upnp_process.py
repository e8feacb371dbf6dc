"""Whoever calls itself a router costs the node a line, whatever it sends."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from p2p.peers.router import Forwarded, RouterError
from p2p.peers.upnp_process import MEMORY_BYTES, UpnpProcess
from shoal_base.children import python
from tests.support.netns import available, open_lan

FOUND = Forwarded(host="9.9.9.9", port=4002, lease_s=math.inf)


def with_router(body: str) -> UpnpProcess:
    """The child with a router on paper: `body` is of its method `forward`."""
    code = f"""
import time
from p2p.peers import upnp_process
from p2p.peers.router import Forwarded, RouterError

class Paper:
    num_asked = 0

    def forward(self, port, lease_s):
        self.num_asked += 1
{textwrap.indent(body, " " * 8)}

    def forget(self):
        if self.num_asked != 2:
            raise RouterError(f"asked {{self.num_asked}} times")

upnp_process.ANSWER_S = 1
upnp_process.UpnpRouter = Paper
upnp_process.main()
"""
    return UpnpProcess(python("-c", code))


def saying(code: str) -> UpnpProcess:
    """A child that reads a question and does something else."""
    return UpnpProcess(python("-c", f"import sys, time\nsys.stdin.readline()\n{code}"))


def test_it_is_the_router_that_it_stands_for() -> None:
    one = with_router("return Forwarded(host='9.9.9.9', port=port + 1, lease_s=float('inf'))")
    one.forget()
    assert one.forward(4001, 60) == FOUND
    child = one._child
    assert child is not None and os.getpgid(child.pid) == child.pid, "Ctrl-C is not for it"
    for number in (signal.SIGINT, signal.SIGTERM):
        child.send_signal(number)
    assert one.forward(4001, 60) == FOUND
    one.forget()
    assert child.poll() is not None and one._child is None


def test_why_it_cannot_be_is_the_routers_line() -> None:
    with pytest.raises(RouterError, match=r"^not today$"):
        with_router("raise RouterError('not today')").forward(4001, 60)


@pytest.mark.parametrize(
    "body",
    [
        "kept = bytearray(300 << 20)\nreturn Forwarded(host='h', port=1, lease_s=1)",
        "time.sleep(600)",
        "while True: pass",
        "raise SystemExit",
        "raise ValueError",
    ],
)
def test_a_child_that_falls_ill_is_one_line(body: str) -> None:
    one = with_router(body)
    with pytest.raises(RouterError, match="no answer in 19 s, or one too large to hold"):
        one.forward(4001, 60)
    assert one._child is None


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
def test_an_answer_that_is_none_is_one_line(code: str) -> None:
    one = saying(code)
    with pytest.raises(RouterError) as caught:
        one.forward(4001, 60)
    assert len(str(caught.value).splitlines()) == 1
    assert one._child is None


@pytest.mark.parametrize("answer", ["no JSON", "7", "null", "[" * 4_000])
def test_nor_is_one_to_being_told_to_forget(answer: str) -> None:
    right = '{"host": "9.9.9.9", "port": 4002, "lease_s": Infinity}'
    one = saying(f"print({right!r}, flush=True)\nsys.stdin.readline()\nprint({answer!r})")
    assert one.forward(4001, 60) == FOUND
    child = one._child
    with pytest.raises(RouterError, match="nothing that is an answer"):
        one.forget()
    assert child is not None and child.poll() is not None and one._child is None


def test_it_ends_with_whoever_asked() -> None:
    code = (
        "import os, signal\n"
        "from tests.p2p.peers.test_upnp_process import FOUND, with_router\n"
        'one = with_router(\'return Forwarded(host="9.9.9.9", port=4002, lease_s=float("inf"))\')\n'
        "assert one.forward(4001, 60) == FOUND\n"
        "print(one._child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    asked = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
    assert asked.returncode == -signal.SIGKILL, asked.stderr
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
        psutil.Process(int(asked.stdout)).wait(20)


def test_a_child_that_cannot_be_started_is_one_line() -> None:
    with pytest.raises(RouterError, match="No such file"):
        UpnpProcess(["/nowhere/python"]).forward(4001, 60)


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
import resource
from p2p.peers.router import RouterError
from p2p.peers.upnp_process import UpnpProcess
try:
    UpnpProcess().forward(4001, 60)
except RouterError as error:
    print(str(error).count("\\n"))
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(own.split()[1]) * 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


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
