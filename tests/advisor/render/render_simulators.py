"""Small strict stand-ins for xl, virsh, cgset, tc and openstack: argv in, state kept, refused what the tools refuse.

openstack's is after the reference texts (its client cannot run here); the others' syntax also meets the real tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from advisor.domain import Command
from profiler.observed import parse_cpus


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

    def settle(self, commands: Sequence[Command]) -> None:
        """Do and undo, so that every setting that they touch holds a value."""
        self.do(commands)
        self.undo(commands)

    def check_undo(self, commands: Sequence[Command], *, changes: bool = False) -> None:
        """Undone, they leave all as it was before them, and done again as after them; a change where there must be."""
        before = dict(self.state)
        self.do(commands)
        after = dict(self.state)
        assert after != before or not changes
        self.undo(commands)
        assert self.state == before
        self.do(commands)
        assert self.state == after

    def run(self, argv: tuple[str, ...]) -> None:
        if argv:
            getattr(self, argv[0])(*argv[1:])

    def xl(self, verb: str, *rest: str) -> None:
        if verb == "vcpu-pin":
            domain, vcpu, cpus = rest
            self.state[domain, "pin", vcpu] = cpus
        elif verb == "vcpu-set":
            domain, count = rest
            self.state[domain, "vcpus"] = int(count)
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
        elif verb == "emulatorpin":
            self.state[domain, verb] = dict(pairs)["--cpulist"]
        elif verb == "iothreadpin":
            self.state[domain, verb, int(dict(pairs)["--iothread"])] = parse_cpus(dict(pairs)["--cpulist"])
        elif verb == "domiftune":
            average, *more = map(int, dict(pairs)["--outbound"].split(","))
            if bool(average) != (len(more) == 2):
                raise RefusedError(rest)
            self.state[domain, verb, dict(pairs)["--interface"]] = (average, *more)
        else:
            raise RefusedError(verb)

    def cgset(self, *rest: str) -> None:
        *settings, dashes, group = rest
        if dashes != "--" or settings[::2] != ["-r"] * (len(settings) // 2):
            raise RefusedError(rest)
        for name, value in (text.split("=", 1) for text in settings[1::2]):
            if not value:
                raise RefusedError(f"cgset: wrong parameter of option -r: {name}=")
            self._check_bandwidth(group, name, value)
            self.state[group, name] = value

    def _check_bandwidth(self, group: str, name: str, value: str) -> None:
        """The kernel keeps the burst within the quota, whichever is written (tg_set_cfs_bandwidth)."""
        quota = self.state.get((group, "cpu.max"), "max 100000").split()[0].replace("max", "-1")
        quota = self.state.get((group, "cpu.cfs_quota_us"), quota)
        burst = self.state.get((group, "cpu.max.burst"), self.state.get((group, "cpu.cfs_burst_us"), "0"))
        if name in ("cpu.max", "cpu.cfs_quota_us"):
            quota = value.split(maxsplit=1)[0].replace("max", "-1")
        elif name in ("cpu.max.burst", "cpu.cfs_burst_us"):
            burst = value
        if int(quota) != -1 and (int(burst) > int(quota) or int(quota) < 1000):
            raise RefusedError(f"{name}={value}: quota {quota}, burst {burst}")

    def openstack(self, *argv: str) -> None:
        if any(word.startswith("-") and word not in _OPENSTACK_OPTIONS for word in argv):
            raise RefusedError(argv)
        if argv[0] == "flavor":
            self._flavor(argv[1], argv[2:])
        elif argv[:3] == ("network", "qos", "policy"):
            verb, name = argv[3:]
            key = ("policy", name)
            if (verb == "create") == (key in self.state) or verb not in ("create", "delete"):
                raise RefusedError(argv)
            if verb == "create":
                self.state[key] = ()
            elif ("port", name) in {(k[0], v) for k, v in self.state.items()}:
                raise RefusedError(f"{name} is in use")
            else:
                del self.state[key]
        elif argv[:5] == ("network", "qos", "rule", "create", "--type"):
            kind, *numbers, direction, policy = argv[5:]
            wanted = {"bandwidth-limit": ["--max-kbps", "--max-burst-kbits"], "minimum-bandwidth": ["--min-kbps"]}[kind]
            if direction != "--egress" or numbers[::2] != wanted or not all(int(one) > 0 for one in numbers[1::2]):
                raise RefusedError(argv)
            self.state["policy", policy] += ((kind, *numbers[1::2]),)
        elif argv[:3] == ("port", "set", "--qos-policy"):
            policy, port = argv[3:]
            if ("policy", policy) not in self.state:
                raise RefusedError(f"no policy {policy}")
            self.state["port", port] = policy
        elif argv[:3] == ("port", "unset", "--qos-policy"):
            self.state.pop(("port", *argv[3:]), None)
        else:
            raise RefusedError(argv)

    def _flavor(self, verb: str, rest: tuple[str, ...]) -> None:
        *options, flavor = rest
        if set(options[::2]) != {"--property"}:
            raise RefusedError(rest)
        for text in options[1::2]:
            key, _, value = text.partition("=")
            if key not in _EXTRA_SPECS or bool(value) != (verb == "set"):
                raise RefusedError(text)
            if verb == "set":
                if not _EXTRA_SPECS[key](value):
                    raise RefusedError(text)
                self.state["flavor", flavor, key] = value
            else:
                del self.state["flavor", flavor, key]

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


_OPENSTACK_OPTIONS = {
    "--property", "--type", "--egress", "--qos-policy", "--max-kbps", "--max-burst-kbits", "--min-kbps",
}  # fmt: skip
_EXTRA_SPECS: dict[str, Callable[[str], bool]] = {  # nova/api/validation/extra_specs: quota.py, hw.py
    "hw:cpu_policy": {"dedicated", "shared", "mixed"}.__contains__,
    "hw:cpu_thread_policy": {"prefer", "isolate", "require"}.__contains__,
    "hw:emulator_threads_policy": {"share", "isolate"}.__contains__,
    "quota:cpu_shares": lambda value: int(value) >= 1,
    "quota:cpu_period": lambda value: 1_000 <= int(value) <= 1_000_000,
    "quota:cpu_quota": lambda value: int(value) >= 1_000,
    "quota:disk_total_bytes_sec": lambda value: int(value) >= 1,
    "quota:vif_outbound_average": lambda value: int(value) >= 1,
    "quota:vif_outbound_peak": lambda value: int(value) >= 1,
    "quota:vif_outbound_burst": lambda value: int(value) >= 1,
}


def _after(word: str, parts: Sequence[str]) -> str | None:
    return parts[list(parts).index(word) + 1] if word in parts else None


def _place(kind: str, more: Sequence[str]) -> tuple[str | None, ...]:
    if kind == "class":
        return (_after("classid", more),)
    if kind == "filter":
        return ("pref", _after("pref", more))
    return ("root", _after("handle", more)) if "root" in more else ("leaf", _after("handle", more))
