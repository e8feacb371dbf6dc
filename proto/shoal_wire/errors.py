"""Errors of the contract layer, named by who is at fault (after h2 and trio)."""

from __future__ import annotations


class WireError(Exception):
    """Root of this package's errors."""


class LocalError(WireError):
    """The local side asked for something that the protocol does not allow."""


class RemoteError(WireError):
    """The remote side's bytes break the protocol."""


class ManifestError(RemoteError):
    """An unusable manifest; the message names the field and the reason."""
