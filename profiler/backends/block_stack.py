"""Block devices that lie on others (LVM, dm-crypt, md, multipath, bcache): each request and each limit counts once.

The kernel counts a request on every device that it passes: on the logical volume, and on the disk below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from profiler.backends.linux import or_none
from profiler.backends.source import HostSource

_DEVICES = "/sys/dev/block"
_NUMBER = re.compile(r"\d{1,4}:\d{1,7}\Z")
_KEPT_S = 60.0  # volumes come and go slowly, and their numbers are given again
_MOST, _DEPTH = 64, 8  # devices below one device; layers


class BlockStack:
    """Which devices lie on which; devices are named `major:minor`, a partition counts as its disk."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._below: dict[str, tuple[str, ...]] = {}
        self._until_s = 0.0

    def once(self, counted: Mapping[str, int]) -> dict[str, int]:
        """What each device adds to the devices that lie on it.

        So the sum has each request once, at the highest device that counts it: a mirrored write is one write, and what
        goes to a disk directly counts beside what passes a volume on it.
        """
        active = {device for device, value in counted.items() if value}
        if len(active) < 2:
            return dict(counted)
        own = dict(counted)
        for upper in active:
            for lower in self._nearest(upper, active):
                own[lower] -= counted[upper]
        return {device: max(0, value) for device, value in own.items()}

    def limit(self, limits: Mapping[str, int], used: Mapping[str, int]) -> int | None:
        """The limit of all devices that are in use, by the `limits` of some; None = a device in use has none.

        Args:
            limits: bytes per second, by device.
            used: what a group moved, by device; where that is nothing yet, the limited devices are taken for all.
        """
        moved = {device for device, value in self.once(used).items() if value and _NUMBER.match(device)}
        roots = moved or set(limits)
        holding: set[str] = set()
        for device in roots:
            limited = self._limited(device, limits)
            if limited is None:
                return None
            holding |= limited
        return sum(limits[device] for device in holding) if holding else None

    def _limited(self, device: str, limits: Mapping[str, int], depth: int = _DEPTH) -> frozenset[str] | None:
        """The devices whose limits hold for one: itself, or all of those below it, whichever is the lower."""
        below = self.below(device) if depth else ()
        parts = [self._limited(lower, limits, depth - 1) for lower in below]
        lower = frozenset[str]().union(*(part for part in parts if part))
        choices = [lower] if parts and None not in parts else []
        if device in limits:
            choices.append(frozenset({device}))
        return min(choices, key=lambda names: sum(limits[name] for name in names), default=None)

    def _nearest(self, upper: str, active: set[str]) -> set[str]:
        """The nearest active devices below one."""
        found: set[str] = set()
        layer = {upper}
        for _ in range(_DEPTH):
            below = {lower for device in layer for lower in self.below(device)} - {upper}
            found |= below & active
            layer = below - active
        return found

    def below(self, device: str) -> tuple[str, ...]:
        """The devices that one lies on directly; empty = a disk."""
        now_s = self._source.clock()[1]
        if now_s >= self._until_s:
            self._below.clear()
            self._until_s = now_s + _KEPT_S
        if device not in self._below:
            self._below[device] = tuple(self._read_below(device))
        return self._below[device]

    def _read_below(self, device: str) -> Iterator[str]:
        folder = f"{_DEVICES}/{device}/slaves"
        if not _NUMBER.match(device):  # one that went away has no number
            return
        for name in (or_none(self._source.names, folder) or [])[:_MOST]:
            lower = f"{folder}/{name}"
            part = or_none(self._source.read, f"{lower}/partition") is not None
            number = or_none(self._source.read, f"{lower}/../dev" if part else f"{lower}/dev")
            if number is not None:
                yield number.strip()
