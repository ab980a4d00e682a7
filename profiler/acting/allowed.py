"""What all systems have in common whose settings are changed: texts by name, and how a change fails."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from profiler.observed import DEFAULT_WEIGHT, MAX_WEIGHT, parse_cpus


class SettingNotSet(Exception):  # noqa: N818 - reads as what it says at the raise
    """The system does not do what it was asked, or cannot be read; the message is one sentence."""


class SettingGone(SettingNotSet):
    """The instance or its control group is not here any more."""


class SettingRefused(ValueError):  # noqa: N818
    """A setting, target or text that is not changed here, whatever is asked."""


class SettingsOf(Protocol):
    """Settings of one kind of system: `target` is a control group or a domain."""

    def kind(self, name: str) -> str:
        """The kind of change that a setting is part of: weight, cap, pin or disk; SettingRefused."""
        ...

    def default_weight(self, name: str) -> int | None:
        """What the weight under this name is without any wish; None = it is no weight."""
        ...

    def cap_percent(self, settings: Mapping[str, str]) -> float | None:
        """The cap that these settings come to, in percent of a CPU (of a domain for each vCPU): infinite = none; None =
        none of them sets it. SettingRefused where half of a cap is set."""
        ...

    def read(self, target: str, names: Collection[str]) -> Mapping[str, str]:
        """The present texts of settings; SettingNotSet, SettingRefused."""
        ...

    def write(self, target: str, values: Mapping[str, str]) -> None:
        """Give settings these texts, in this order; SettingNotSet, SettingRefused."""
        ...

    def same(self, name: str, one: str, other: str) -> bool:
        """Whether two texts of a setting mean the same."""
        ...


# What may be changed on this host: a file of its own administrator, which no order can widen.
#
#     instances = ["shop-*", "batch-*"]
#     per_hour = 60
#     [weight]
#     lowest = 64
#     highest = 2048
#     [cap]
#     lowest_percent = 50
#     [pin]
#     cpus = "2-15"
#     [tc]
#     lowest_mbit = 10
#
# A kind without its table is not changed. The file and the folders above it belong to root, and no
# other user may write them.

KINDS = ("weight", "cap", "pin", "tc")
PER_HOUR = 60  # orders that change something
LEAST_BURST_KB = 64  # of a limit of an interface: libvirt's policer takes frames of up to 64 KiB
_MOST_BYTES = 65_536
_OTHERS_WRITE = 0o022


@dataclass(frozen=True, slots=True)
class Allowed:
    """Instances by wildcards, orders in an hour, and for each kind its bounds: None = it is not changed.

    Weights are as in the inventory, 256 without any wish; caps in percent of one CPU, of a domain for each vCPU; of an
    interface the lowest limit in Mbit/s.
    """

    instances: tuple[str, ...] = ()
    per_hour: int = PER_HOUR
    weight: tuple[float, float] | None = None
    cap: tuple[float, float] | None = None
    pin: frozenset[int] | None = None
    tc: float | None = None

    def check(self, system: SettingsOf, instance: str, settings: Mapping[str, str]) -> None:
        """SettingRefused where these settings of an instance are not allowed."""
        if not any(fnmatchcase(instance, pattern) for pattern in self.instances):
            raise SettingRefused(f"instance {instance[:80]!r} is none that may be changed here")
        for name, text in settings.items():
            kind = system.kind(name)
            if kind not in KINDS or getattr(self, kind) is None:
                raise SettingRefused(f"{name} is a setting of kind {kind}, which is not allowed here")
            match kind:
                case "weight":
                    self._check_weight(system, name, text)
                case "pin":
                    self._check_pin(name, text)
                case "tc":
                    self._check_rate(name, text)
        if any(system.kind(name) == "cap" for name in settings):
            self._check_cap(system, settings)

    def _check_weight(self, system: SettingsOf, name: str, text: str) -> None:
        default = system.default_weight(name)
        lowest, highest = self.weight or (0.0, 0.0)
        weight = _number(name, text) * DEFAULT_WEIGHT / default if default else 0.0
        if not lowest <= weight <= highest:
            raise SettingRefused(
                f"{name} = {text[:40]} is a weight of {weight:g}, outside of {lowest:g} to {highest:g}"
            )

    def _check_pin(self, name: str, text: str) -> None:
        try:
            cpus = frozenset(parse_cpus(text))
        except ValueError:
            raise SettingRefused(f"{name} = {text[:40]!r} is no list of CPUs") from None
        allowed = self.pin or frozenset()
        if not cpus or not cpus <= allowed:
            raise SettingRefused(f"{name} = {text[:40]} names CPUs that are not allowed here, or none")

    def _check_rate(self, name: str, text: str) -> None:
        """`AVERAGE,PEAK,BURST` in kB, of which a rate is per second; 0 = no limit.

        A small peak or burst would hold back an interface whose average is within bounds.
        """
        if text == "0":
            return
        numbers = [_number(name, part) for part in text.split(",")]
        if len(numbers) != 3:
            raise SettingRefused(f"{name} = {text[:40]!r} is no AVERAGE,PEAK,BURST")
        mbit = min(numbers[:2]) * 8 / 1000
        if mbit < (self.tc or 0.0):
            raise SettingRefused(f"{name} = {text[:40]} is {mbit:g} Mbit/s, below {self.tc:g}")
        if numbers[2] < LEAST_BURST_KB:
            raise SettingRefused(f"{name} = {text[:40]} drops frames: a burst is {LEAST_BURST_KB} kB or more")

    def _check_cap(self, system: SettingsOf, settings: Mapping[str, str]) -> None:
        lowest, highest = self.cap or (0.0, 0.0)
        percent = system.cap_percent(settings)
        if percent is not None and not lowest <= percent <= highest:
            raise SettingRefused(f"a cap of {percent:g} % of a CPU is outside of {lowest:g} to {highest:g} %")


def read_allowed(path: Path, owners: frozenset[int] = frozenset({0})) -> Allowed:
    """What a file allows. ValueError, one sentence with the file, where other users than `owners` may change it, or it
    says something that is not known."""
    try:
        with path.open("rb") as file:
            _check_owned(path, os.fstat(file.fileno()), owners)
            content = file.read(_MOST_BYTES + 1)
        for folder in path.resolve().parents:
            _check_owned(folder, folder.stat(), owners)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{path} is larger than {_MOST_BYTES // 1024} KiB")
    try:
        return _allowed(tomllib.loads(content.decode()))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


def _check_owned(path: Path, status: os.stat_result, owners: frozenset[int]) -> None:
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX  # its files are their owners'
    if status.st_uid not in owners or (status.st_mode & _OTHERS_WRITE and not sticky):
        mode = f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):03o}"
        raise ValueError(f"{path} is refused because other users than root may change it ({mode})")


def _allowed(document: Mapping[str, Any]) -> Allowed:
    _check_names("the file", document, ("instances", "per_hour", *KINDS))
    patterns = document.get("instances", [])
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        raise ValueError('instances is a list of names such as ["shop-*"]')
    per_hour = document.get("per_hour", PER_HOUR)
    if type(per_hour) is not int or not 0 <= per_hour <= 100_000:
        raise ValueError("per_hour is a whole number from 0 to 100,000")
    cpus, rate = _table(document, "pin", ("cpus",)), _table(document, "tc", ("lowest_mbit",))
    return Allowed(
        instances=tuple(patterns),
        per_hour=per_hour,
        weight=_bounds(document, "weight", ("lowest", "highest"), (1.0, float(MAX_WEIGHT))),
        cap=_bounds(document, "cap", ("lowest_percent", "highest_percent"), (100.0, float("inf"))),
        tc=None if rate is None else _least(rate.get("lowest_mbit", 0.0)),
        pin=None if cpus is None else frozenset(parse_cpus(str(cpus.get("cpus", "")))),
    )


def _table(document: Mapping[str, Any], name: str, known: tuple[str, ...]) -> Mapping[str, Any] | None:
    table = document.get(name)
    if table is None:
        return None
    if not isinstance(table, dict):
        raise TypeError(f"[{name}] is a table")
    _check_names(f"[{name}]", table, known)
    return table


def _check_names(where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            raise ValueError(f"{where} has {name[:40]!r}, which is none of {', '.join(known)}")


def _bounds(
    document: Mapping[str, Any], name: str, names: tuple[str, str], usual: tuple[float, float]
) -> tuple[float, float] | None:
    table = _table(document, name, names)
    if table is None:
        return None
    found = [table.get(each, default) for each, default in zip(names, usual, strict=True)]
    if any(type(each) not in (int, float) or not each >= 0 for each in found) or not found[0] <= found[1]:
        raise ValueError(f"[{name}] has no numbers, or {names[0]} is above {names[1]}")
    return float(found[0]), float(found[1])


def _least(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise ValueError("[tc] lowest_mbit is a number of Mbit/s from 0 on")
    return float(value)


def _number(name: str, text: str) -> float:
    if not text.isdecimal() or len(text) > 12:
        raise SettingRefused(f"{name} = {text[:40]!r} is no number")
    return float(text)
