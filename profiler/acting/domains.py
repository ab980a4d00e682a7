"""Settings of libvirt's domains, by `virsh`: pins, shares, quota, limits of disks and interfaces of what runs.

With `--live` only: a restart brings the defined state back.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence

from profiler.acting.allowed import SettingGone, SettingNotSet, SettingRefused
from profiler.acting.group_files import GroupFiles
from profiler.backends.lxc.control_groups import V1_DEFAULT_SHARES, V2_DEFAULT_WEIGHT
from profiler.observed import parse_cpus

PATIENCE_S = 60.0  # of one call of virsh
Run = Callable[[Sequence[str], float], str]  # arguments, and for how many seconds they may run
_KINDS: Mapping[str, str] = {
    "vcpupin": "pin", "emulatorpin": "pin", "iothreadpin": "pin", "cpu_shares": "weight", "vcpu_period": "cap",
    "vcpu_quota": "cap", "total_bytes_sec": "disk", "outbound": "tc",
}  # fmt: skip
_SETTING = re.compile(
    r"(vcpupin \d{1,4}|emulatorpin|iothreadpin \d{1,2}|cpu_shares|vcpu_period|vcpu_quota"
    r"|total_bytes_sec [A-Za-z0-9_][A-Za-z0-9_.-]{0,31}|outbound [0-9a-f]{2}(?::[0-9a-f]{2}){5})\Z"
)
_TEXT = re.compile(r"(?:[0-9,\-]{1,200}|r)\Z")
_RATES = ("outbound.average", "outbound.peak", "outbound.burst")
_ROW = re.compile(r"\s*(\S+?)\s*:?\s+(\S*)\s*\Z")
_MOST_QUOTA = 17_592_186_044_415  # µs, 2**44 - 1: how libvirt shows no quota in version 2 of control groups
_ABSENT = ("failed to get domain", "Domain not found", "domain is not running")


def run_virsh(argv: Sequence[str], patience_s: float) -> str:
    """What virsh prints; SettingGone or SettingNotSet with its own words."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=patience_s, check=False,
            env={"LC_ALL": "C", "PATH": os.environ.get("PATH", "")}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise SettingNotSet("there is no virsh on this machine: install libvirt-clients") from None
    except subprocess.TimeoutExpired:
        raise SettingNotSet(f"virsh did not answer within {patience_s:.0f} s") from None
    if done.returncode != 0:
        words = " ".join(done.stderr.split())[:300]
        raise (SettingGone if any(sign in words for sign in _ABSENT) else SettingNotSet)(f"virsh: {words}")
    return done.stdout


class DomainSettings:
    """Domains at one connection of libvirt."""

    def __init__(self, uri: str, run: Run = run_virsh) -> None:
        self._uri = uri
        self._run = run

    def kind(self, name: str) -> str:
        """The kind of change that a setting is part of; SettingRefused where it is none."""
        return _KINDS[check_setting(name).partition(" ")[0]]

    def default_weight(self, name: str) -> int | None:
        """What the weight under this name is without any wish; None = it is no weight."""
        if name != "cpu_shares":
            return None
        return V1_DEFAULT_SHARES if GroupFiles().version == 1 else V2_DEFAULT_WEIGHT

    def cap_percent(self, settings: Mapping[str, str]) -> float | None:
        """The cap of each vCPU that these come to, in percent of a CPU: infinite = none; None = none sets it."""
        if not settings.keys() & {"vcpu_quota", "vcpu_period"}:
            return None
        if not {"vcpu_quota", "vcpu_period"} <= settings.keys():
            raise SettingRefused("a quota and its period are set together, so that it is known what they come to")
        quota, period = settings["vcpu_quota"], settings["vcpu_period"]
        if not re.fullmatch(r"-?\d{1,20}", quota) or not re.fullmatch(r"[1-9]\d{0,9}", period):
            raise SettingRefused(f"{quota[:40]!r} of {period[:40]!r} is no cap")
        return float("inf") if is_unlimited(quota) else 100.0 * int(quota) / int(period)

    def read(self, target: str, names: Collection[str]) -> dict[str, str]:
        """The present texts of settings."""
        return {name: self._text(target, name) for name in names}

    def write(self, target: str, values: Mapping[str, str]) -> None:
        """Give settings these texts, in this order."""
        for name, text in values.items():
            command, *rest = check_setting(name).split(" ")
            if not is_text(text):
                raise SettingRefused(f"{name}: {text[:60]!r} is no text for virsh")
            match command:
                case "vcpupin":
                    words = ["vcpupin", "--vcpu", rest[0], "--live", "--cpulist", text]
                case "emulatorpin":
                    words = ["emulatorpin", "--live", "--cpulist", text]
                case "iothreadpin":
                    words = ["iothreadpin", "--iothread", rest[0], "--live", "--cpulist", text]
                case "outbound":
                    words = ["domiftune", "--interface", rest[0], "--live", "--outbound", text]
                case "total_bytes_sec":
                    words = ["blkdeviotune", "--device", rest[0], "--live", "--total-bytes-sec", text]
                case _:
                    words = ["schedinfo", "--live", "--set", f"{name}={text}"]
            self.ask(target, words)

    def same(self, name: str, one: str, other: str) -> bool:
        """Whether two texts of a setting mean the same."""
        if name == "vcpu_quota" and is_unlimited(one) and is_unlimited(other):
            return True
        return one == other or ("pin" in name and _cpus(one) == _cpus(other))

    def ask(self, target: str, words: Sequence[str], patience_s: float = PATIENCE_S) -> str:
        """What virsh prints of a command about a domain."""
        if not target or target.startswith("-") or target.isdecimal():
            raise SettingRefused(f"virsh would read domain {target[:60]!r} as an option or number")
        return self._run(["virsh", "--connect", self._uri, words[0], "--domain", target, *words[1:]], patience_s)

    def _text(self, target: str, name: str) -> str:
        command, *rest = check_setting(name).split(" ")
        match command:
            case "vcpupin":
                shown, row = self.ask(target, ["vcpupin", "--vcpu", rest[0], "--live"]), rest[0]
            case "emulatorpin":
                shown, row = self.ask(target, ["emulatorpin", "--live"]), "*"
            case "iothreadpin":
                shown, row = self.ask(target, ["iothreadinfo", "--live"]), rest[0]
            case "total_bytes_sec":
                shown, row = self.ask(target, ["blkdeviotune", "--device", rest[0], "--live"]), "total_bytes_sec"
            case "outbound":
                shown = self.ask(target, ["domiftune", "--interface", rest[0], "--live"])
                rates = {found[1]: found[2] for line in shown.splitlines() if (found := _ROW.match(line))}
                texts = [rates.get(rate, "0") for rate in _RATES]
                return ",".join(texts) if any(text != "0" for text in texts) else "0"
            case _:
                shown, row = self.ask(target, ["schedinfo", "--live"]), name
        for line in shown.splitlines():
            found = _ROW.match(line)
            if found and found[1] == row:
                return found[2]
        raise SettingNotSet(f"virsh shows no {name} of {target}")


def check_setting(name: str) -> str:
    """The same name; SettingRefused where it is no setting of a domain."""
    if not _SETTING.match(name):
        raise SettingRefused(f"{name[:60]!r} is no setting of a domain that is changed here")
    return name


def is_text(text: str) -> bool:
    """Whether virsh may get this as the text of a setting."""
    return _TEXT.match(text) is not None


def is_unlimited(quota: str) -> bool:
    """Whether this is how libvirt shows no quota."""
    return re.fullmatch(r"-?\d{1,20}", quota) is not None and not 0 <= int(quota) < _MOST_QUOTA


def _cpus(text: str) -> object:
    try:
        return parse_cpus(text)
    except ValueError:
        return text
