"""Small strict stand-ins for xl, virsh, cgset and tc: they take argv, keep state and refuse what the tools refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from advisor.domain import Command


class RefusedError(Exception):
    """The tool would end with an error."""


class Machine:
    """State as one mapping, so that two states compare with ==."""

    def __init__(self) -> None:
        self.state: dict[tuple[Any, ...], Any] = {}

    def do(self, commands: Iterable[Command]) -> None:
        for command in commands:
            self.run(command.argv)

    def undo(self, commands: Sequence[Command]) -> None:
        for command in reversed(commands):
            self.run(command.undo)

    def run(self, argv: tuple[str, ...]) -> None:
        if argv:
            getattr(self, argv[0])(*argv[1:])

    def xl(self, verb: str, *rest: str) -> None:
        if verb == "vcpu-pin":
            domain, vcpu, cpus = rest
            self.state[domain, "pin", vcpu] = cpus
        elif verb in ("sched-credit", "sched-credit2"):
            dash_d, domain, option, value = rest
            low, high = {"-w": (1, 65_535), "-c": (0, 100 * 4096)}[option]
            if dash_d != "-d" or not low <= int(value) <= high:
                raise RefusedError(rest)
            self.state[domain, option] = int(value)
        else:
            raise RefusedError(verb)

    def virsh(self, verb: str, *rest: str) -> None:
        options = [part for part in rest if part != "--live"]
        pairs = list(zip(options[::2], options[1::2], strict=True))
        domain = dict(pairs)["--domain"]
        if verb == "vcpupin":
            self.state[domain, "pin", dict(pairs)["--vcpu"]] = dict(pairs)["--cpulist"]
        elif verb == "schedinfo":
            for name, value in (pair[1].split("=") for pair in pairs if pair[0] == "--set"):
                fits = {
                    "cpu_shares": 1 <= int(value) <= 262_144,
                    "vcpu_period": 1_000 <= int(value) <= 1_000_000,
                    "vcpu_quota": int(value) == -1 or int(value) >= 1_000,
                }
                if not fits[name]:
                    raise RefusedError(rest)
                self.state[domain, name] = int(value)
        elif verb == "blkdeviotune":
            self.state[domain, dict(pairs)["--device"]] = int(dict(pairs)["--total-bytes-sec"])
        else:
            raise RefusedError(verb)

    def cgset(self, *rest: str) -> None:
        *settings, dashes, group = rest
        if dashes != "--" or settings[::2] != ["-r"] * (len(settings) // 2):
            raise RefusedError(rest)
        for name, value in (text.split("=", 1) for text in settings[1::2]):
            if not value:
                raise RefusedError(f"cgset: wrong parameter of option -r: {name}=")
            self.state[group, name] = value

    def tc(self, kind: str, verb: str, *rest: str) -> None:
        dev, device, *more = rest
        if dev != "dev":
            raise RefusedError(rest)
        key = (device, kind, *_place(kind, more))
        if (verb == "add") == (key in self.state):
            raise RefusedError(f"{verb} of {key}")
        if verb == "del":
            self._let_go(device, key)
            del self.state[key]
        else:
            self._check_parent(device, more)
            self.state[key] = tuple(more)

    def _let_go(self, device: str, key: tuple[Any, ...]) -> None:
        """A class with children or filters is busy; a qdisc takes all its classes along, which no plan should use."""
        name = key[-1]
        for other, value in self.state.items():
            if other[0] == device and other != key and _after("parent", value) == name:
                raise RefusedError(f"{key} is busy: {other}")
            if other[:2] == (device, "filter") and _after("flowid", value) == name:
                raise RefusedError(f"{key} is busy: {other}")

    def _check_parent(self, device: str, more: Sequence[str]) -> None:
        parent = _after("parent", more)
        if parent is not None and not any(key[0] == device and key[-1] == parent for key in self.state):
            raise RefusedError(f"no {parent} on {device}")


def _after(word: str, parts: Sequence[str]) -> str | None:
    return parts[list(parts).index(word) + 1] if word in parts else None


def _place(kind: str, more: Sequence[str]) -> tuple[str | None, ...]:
    if kind == "class":
        return (_after("classid", more),)
    if kind == "filter":
        return ("pref", _after("pref", more))
    return ("root", _after("handle", more)) if "root" in more else ("leaf", _after("handle", more))
