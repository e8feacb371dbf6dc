"""Errors of the contract layer, named by who is at fault (after h2 and trio)."""

from __future__ import annotations


class WireError(Exception):
    """Root of this package's errors."""


class LocalError(WireError):
    """Our own side asked for something the contract does not allow."""


class RemoteError(WireError):
    """The bytes of the other side break the contract."""


class ManifestError(RemoteError):
    """A manifest that cannot be used; the message says which field and why."""
