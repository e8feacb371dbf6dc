"""A data directory: its one owner, and its small files (port, addresses)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from shoal_base.bounded import FEW
from shoal_base.files import write_atomically

IDENTITY_FILE = "identity.key"
LOCK_FILE = "lock"
ADDRESSES_FILE = "addresses"
_ANY_PORT = re.compile(r"^/(ip4|ip6)/([^/]+)/tcp/0$")


class DataDirInUseError(Exception):
    """Another process owns the data directory; the message is one line and names its pid."""


@contextlib.contextmanager
def lock_data_dir(directory: Path) -> Iterator[None]:
    """Lock `directory` while the context is open; the kernel unlocks it if this process dies.

    Raises:
        DataDirInUseError: another process owns it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder_of(descriptor)
            do = "stop it or choose another --data-dir"
            if _is_suspended(holder):
                do = f"it is suspended: {_continue(holder)}, or choose another --data-dir"
            raise DataDirInUseError(
                f"the data directory {directory} is in use by process {holder or 'unknown'}; {do}"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)


def owner_of(directory: Path) -> int | None:
    """Return the process id of the owner of a data directory; None if no process owns it."""
    return int(holder) if (holder := _holder(directory)) else None


def why_silent(directory: Path) -> str | None:
    """Return why the owner of a data directory does not answer, in one line; None without one.

    Call it after a request to the owner timed out.
    """
    if (holder := _holder(directory)) is None:
        return None
    return why_suspended(directory) or (
        f"process {holder or 'unknown'} uses {directory} and does not answer: it is still starting "
        "or stopping, or it hangs (`shoal logs` shows its last lines)"
    )


def why_suspended(directory: Path) -> str | None:
    """Return one line if the owner of a data directory is suspended, otherwise None."""
    holder = _holder(directory)
    if holder is None or not _is_suspended(holder):
        return None
    return (
        f"process {holder} uses {directory} and does not answer: it is suspended "
        f"({_continue(holder)})"
    )


def _holder(directory: Path) -> str | None:
    """Return the process that owns a data directory, empty if unknown; None where none does."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A shared lock, released at once, so that it blocks no other process.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _holder_of(descriptor)
    finally:
        os.close(descriptor)


def _holder_of(descriptor: int) -> str:
    """Return the process that a lock file names; empty where it names none."""
    text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return text if text.isdigit() else ""


def _is_suspended(holder: str) -> bool:
    try:
        state = psutil.Process(int(holder)).status()
    except (psutil.Error, ValueError, OverflowError):  # gone, of another user, or none
        return False
    return state in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def _continue(holder: str) -> str:
    return f"`fg` in its terminal, or `kill -CONT {holder}`"


def remembered_listen(listen: Sequence[str], data_dir: Path) -> tuple[str, ...]:
    """Return `listen` with port 0 replaced by the port of the last run, where it is free.

    Saved peers then find this node where it was, also after a crash.
    """
    last = _last_ports(data_dir)
    return tuple(_with_port(address, last) for address in listen)


def write_addresses(data_dir: Path, addresses: Sequence[str]) -> None:
    """Save this peer's addresses for its next run and for other peers on this machine."""
    write_atomically(data_dir / ADDRESSES_FILE, "\n".join(addresses).encode() + b"\n")


def sibling_addresses(data_dir: Path) -> tuple[str, ...]:
    """Return the saved addresses of peers with sibling data directories."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for path in sorted(data_dir.resolve().parent.glob(f"*/{ADDRESSES_FILE}"))[:FEW]:
            if path.parent == data_dir.resolve():
                continue
            found += _lines(path)
    return tuple(found)


def _last_ports(data_dir: Path) -> dict[str, int]:
    ports: dict[str, int] = {}
    for address in _lines(data_dir / ADDRESSES_FILE):
        parts = address.split("/")
        if len(parts) > 4 and parts[3] == "tcp" and parts[4].isdigit():
            ports.setdefault(parts[1], int(parts[4]))
    return ports


def _with_port(address: str, last: dict[str, int]) -> str:
    match = _ANY_PORT.match(address)
    port = last.get(match[1]) if match else None
    if match is None or port is None or not _is_free(match[1], match[2], port):
        return address
    return f"/{match[1]}/{match[2]}/tcp/{port}"


def _is_free(family: str, host: str, port: int) -> bool:
    kind = socket.AF_INET6 if family == "ip6" else socket.AF_INET
    with socket.socket(kind, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().split()[:FEW]
    except (OSError, UnicodeDecodeError):
        return []
