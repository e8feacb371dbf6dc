"""A gateway asked by NAT-PMP: a real socket that answers as a router does, or as it likes."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.peers import nat_pmp
from shoal_p2p.peers.forwarded import Forwarded, RouterError
from shoal_p2p.peers.nat_pmp import default_gateway

Answer = Callable[[bytes], list[bytes]]
OUTSIDE = socket.inet_aton("9.9.9.9")
HERE = f"127.9.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250 + 1}"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nat_pmp, "_WAITS_S", (0.05, 0.1))
    monkeypatch.setattr(nat_pmp, "default_gateway", lambda: HERE)


@contextmanager
def gateway(answer: Answer) -> Iterator[list[bytes]]:
    """Run a gateway; yield what it is asked."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((HERE, 5351))

        def serve() -> None:
            while True:
                question, asker = server.recvfrom(100)
                if question == b"end":
                    return
                asked.append(question)
                for one in answer(question):
                    server.sendto(one, asker)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"end", (HERE, 5351))
            thread.join()


def honest(question: bytes, *, gives: int | None = None, lease_s: int | None = None) -> list[bytes]:
    head = struct.pack("!BBHI", 0, question[1] + 128, 0, 77)
    if question[1] == 0:
        return [head + OUTSIDE]
    inside, outside, seconds = struct.unpack("!HHI", question[4:])
    lasts = seconds if lease_s is None else lease_s
    return [head + struct.pack("!HHI", inside, outside if gives is None else gives, lasts)]


def test_a_port_is_forwarded_kept_and_given_back() -> None:
    with gateway(honest) as asked:
        found = Forwarded(host="9.9.9.9", port=4001, lease_s=3600, way="NAT-PMP")
        assert nat_pmp.forward(4001, 4001, 3600) == found
        nat_pmp.forget(4001, 4001)
    assert asked == [b"\0\0", b"\0\2\0\0" + struct.pack("!HHI", 4001, 4001, 3600),
                     b"\0\2\0\0" + struct.pack("!HHI", 4001, 0, 0)]  # fmt: skip


def test_the_port_and_the_time_that_it_gives_instead_are_kept_to() -> None:
    with gateway(lambda question: honest(question, gives=5000, lease_s=120)) as asked:
        found = nat_pmp.forward(4001, 4001, 3600)
        assert (found.port, found.lease_s) == (5000, 120)
        nat_pmp.forward(4001, found.port, 3600)
    wanted = [struct.unpack("!H", question[6:8])[0] for question in asked if question[1] == 2]
    assert wanted == [4001, 5000], "renewed where it is"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda q: [struct.pack("!BBHI", 0, q[1] + 128, 2, 0)], "it is not allowed there"),
        (lambda q: [struct.pack("!BBHI", 0, q[1] + 128, 99, 0)], "refused with the number 99"),
        (lambda q: [b"\0\x80" + bytes(10)], "no address outside"),
        (lambda q: honest(q, gives=0), "forwards nothing"),
        (lambda q: honest(q, lease_s=0), "forwards nothing"),
        (lambda q: [], "no answer"),
        (lambda q: [b"", b"\1\x80" + bytes(10), b"\0\x81" + bytes(10), b"\0\x80"], "no answer"),
        (lambda q: honest(q) if q[1] == 0 else honest(q[:4] + b"\0\1" + q[6:]), "no answer"),
    ],
)
def test_what_it_refuses_or_does_not_say_is_one_line(answer: Answer, says: str) -> None:
    with gateway(answer), pytest.raises(RouterError, match=says) as caught:
        nat_pmp.forward(4001, 4001, 60)
    assert "\n" not in str(caught.value)


def test_a_question_that_is_lost_is_asked_again() -> None:
    lost = iter([True, False, True, False])
    with gateway(lambda question: [] if next(lost) else honest(question)) as asked:
        assert nat_pmp.forward(4001, 4001, 60).port == 4001
    assert len(asked) == 4


def test_a_gateway_that_does_not_speak_it_is_known_at_once() -> None:
    with pytest.raises(RouterError, match="does not speak it: Connection refused"):
        nat_pmp.forward(4001, 4001, 60)


@given(said=st.lists(st.binary(max_size=40), max_size=4), is_headed=st.booleans())
@settings(max_examples=60)
def test_whatever_a_gateway_says_is_a_port_or_one_line(said: list[bytes], is_headed: bool) -> None:
    def answer(question: bytes) -> list[bytes]:
        head = struct.pack("!BBH", 0, question[1] + 128, 0) if is_headed else b""
        return [head + one for one in said]

    with pytest.MonkeyPatch.context() as patch, gateway(answer):
        patch.setattr(nat_pmp, "_WAITS_S", (0.01,))
        try:
            found = nat_pmp.forward(4001, 4001, 60)
        except RouterError:
            return
    assert 0 < found.port < 65536
    assert found.lease_s > 0


ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t0000FEA9\t00000000\t0001\t0\t0\t1000\t0000FFFF\t0\t0\t0
wlan0\t00000000\t0102A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
"""


def test_the_gateway_is_the_nearest_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "route"
    monkeypatch.setattr(nat_pmp, "_ROUTES", file)
    file.write_text(ROUTES)
    assert default_gateway() == "192.168.1.1"
    file.write_text("\n".join(ROUTES.splitlines()[:2]))
    with pytest.raises(RouterError, match="no gateway"):
        default_gateway()
    file.unlink()
    with pytest.raises(RouterError, match="does not say"):
        default_gateway()
