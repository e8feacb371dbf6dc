"""Which of a publisher's policies are its newest: what bounds the age of groups. Pure.

Seconds say little about a group's age: what makes it stale is what its publisher has learnt since.
A policy that no update has changed (a person's, a frozen model's) makes nothing stale.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class NewestPolicies:
    """The newest policy versions that a publisher's groups name, by its clock.

    Versions and clock are the publisher's claims: a false one hides or keeps its own groups only.
    One that begins again at version 0 has the later clock, and so goes on.
    """

    _made: dict[int, int] = field(default_factory=dict)
    """The latest time of each, in milliseconds."""

    def note(self, version: int, created_ms: int, most: int) -> int | None:
        """Count a group; return the version that is no longer among the `most` newest, if one.

        It may be the one just noted. `most` is 1 or greater.
        """
        self._made[version] = max(created_ms, self._made.get(version, created_ms))
        if len(self._made) <= most:
            return None
        oldest = min(self._made, key=lambda one: (self._made[one], one))
        del self._made[oldest]
        return oldest

    def has(self, version: int) -> bool:
        """Whether a version is among them."""
        return version in self._made
