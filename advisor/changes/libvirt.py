"""Domains of libvirt, by `virsh` at the connection of their host: pins, shares, quota, limits of disks and interfaces
of what runs, and live migrations between two of these hosts.

Only what rendered commands set, with `--live`: a restart brings the defined state back.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence

from advisor.changes.controller import HOST, ChangeFailed, Executor, ExecutorKind, Gone, Meaning, Reach
from advisor.changes.migrations import Migrations, Place, Waiting
from advisor.domain import Change, ChangeKind, Command, Host, Instance
from advisor.errors import InvalidInput
from advisor.render.names import domain_name, not_an_option
from profiler.observed import format_cpus, parse_cpus

PATIENCE_S = 60.0  # of one call of virsh
Run = Callable[[Sequence[str], float], str]  # arguments, and for how many seconds they may run
_KINDS: Mapping[str, ChangeKind] = {
    "vcpupin": "pin", "emulatorpin": "pin", "iothreadpin": "pin", "schedinfo": "weight", "blkdeviotune": "disk",
    "domiftune": "tc",
}  # fmt: skip
_PARAMETERS: Mapping[str, ChangeKind] = {"cpu_shares": "weight", "vcpu_period": "cap", "vcpu_quota": "cap"}
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
    """What virsh prints; Gone or ChangeFailed with its own words."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=patience_s, check=False,
            env={"LC_ALL": "C", "PATH": os.environ.get("PATH", "")}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise ChangeFailed("there is no virsh on this machine: install libvirt-clients") from None
    except subprocess.TimeoutExpired:
        raise ChangeFailed(f"virsh did not answer within {patience_s:.0f} s") from None
    if done.returncode != 0:
        words = " ".join(done.stderr.split())[:300]
        raise (Gone if any(sign in words for sign in _ABSENT) else ChangeFailed)(f"virsh: {words}")
    return done.stdout


class Libvirt:
    """Domains of the hosts whose connections are in `uris`."""

    def __init__(self, uris: Mapping[str, str], run: Run = run_virsh, waiting: Waiting | None = None) -> None:
        self._uris = dict(uris)
        self._run = run
        self._waiting = waiting or Waiting(Reach().move_s)
        self._migrations = Migrations(self, self._waiting)

    def meaning(self, host: Host, command: Command) -> Meaning:
        self._uri(host.id)
        kind, domain, after = _parsed(command.argv)
        _, same_domain, before = _parsed(command.undo)
        if (domain, list(before)) != (same_domain, list(after)):
            raise InvalidInput(f"{' '.join(command.argv)[:200]} sets something else than its undo", field="command")
        everywhere = format_cpus(tuple(host.cpus))  # what virsh takes `r` for, and shows
        before, after = (
            {name: everywhere if text == "r" else text for name, text in texts.items()} for texts in (before, after)
        )
        return Meaning(kind, domain, before, after)

    def moving(self, instance: Instance, source: Host, target: Host) -> Meaning:
        for host in (source, target):
            self._uri(host.id)
        return Meaning("move", domain_name(instance), {HOST: source.id}, {HOST: target.id})

    def read(self, change: Change) -> Mapping[str, str]:
        if change.kind == "move":
            return self._migrations.read(change)
        return {name: self._text(change, name) for name in change.after}

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        if change.kind == "move":
            self._migrations.write(change, values)
            return
        for name, text in values.items():
            command, *rest = _checked(name).split(" ")
            if not _TEXT.match(text):
                raise InvalidInput(f"{name}: {text[:60]!r} is no text for virsh", field="command")
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
            self._virsh(change, words)

    def place(self, change: Change) -> Place:
        """By the hosts of both ends: one has it; while it moves, both do, and the source has a job for it."""
        states = self._states(change)
        if list(states.values()) != ["running"]:  # it may have come from one to the other between the two questions
            states = self._states(change)
        running = [host for host, state in states.items() if state == "running"]
        if len(states) == 1 and not self._job(change, next(iter(states))):
            (host,) = states
            return Place(host, why_not="" if running else f"it is {states[host]}, and not running")
        if not states:
            raise Gone(f"{change.subject} is on none of {' and '.join(_ends(change))} any more")
        return Place((running or list(states))[0], moves=True)

    def begin(self, change: Change, there: str) -> None:
        """virsh works until the domain is there; one that is killed lets it stay where it was."""
        here = next(host for host in _ends(change) if host != there)
        domain = not_an_option(change.target, "domain")
        words = ["--live", "--persistent", "--undefinesource", "--domain", domain, "--desturi", self._uri(there)]
        self._run(["virsh", "--connect", self._uri(here), "migrate", *words], self._waiting.patience_s)

    def call_off(self, change: Change) -> None:
        for host in _ends(change):
            if self._state(change, host) == "running":
                self._virsh(change, ["domjobabort"], host)

    def failure(self, change: Change) -> str:
        del change
        return ""  # virsh said it as it ended

    def _states(self, change: Change) -> dict[str, str]:
        return {host: state for host in _ends(change) if (state := self._state(change, host))}

    def _state(self, change: Change, host: str) -> str:
        """As virsh has it; empty = the domain is not there."""
        try:
            state = self._virsh(change, ["domstate"], host).strip()
        except Gone:
            return ""
        return "" if state == "shut off" else state

    def _job(self, change: Change, host: str) -> bool:
        rows = (line.split(":", 1) for line in self._virsh(change, ["domjobinfo"], host).splitlines() if ":" in line)
        kind = next((text.strip() for name, text in rows if name.strip() == "Job type"), "None")
        return kind not in ("None", "Completed")

    def same(self, setting: str, one: str, other: str) -> bool:
        if setting == "vcpu_quota" and _is_unlimited(one) and _is_unlimited(other):
            return True
        return one == other or ("pin" in setting and _cpus(one) == _cpus(other))

    def _text(self, change: Change, name: str) -> str:
        command, *rest = _checked(name).split(" ")
        match command:
            case "vcpupin":
                shown, row = self._virsh(change, ["vcpupin", "--vcpu", rest[0], "--live"]), rest[0]
            case "emulatorpin":
                shown, row = self._virsh(change, ["emulatorpin", "--live"]), "*"
            case "iothreadpin":
                shown, row = self._virsh(change, ["iothreadinfo", "--live"]), rest[0]
            case "total_bytes_sec":
                shown, row = self._virsh(change, ["blkdeviotune", "--device", rest[0], "--live"]), "total_bytes_sec"
            case "outbound":
                shown = self._virsh(change, ["domiftune", "--interface", rest[0], "--live"])
                rates = {found[1]: found[2] for line in shown.splitlines() if (found := _ROW.match(line))}
                texts = [rates.get(rate, "0") for rate in _RATES]
                return ",".join(texts) if any(text != "0" for text in texts) else "0"
            case _:
                shown, row = self._virsh(change, ["schedinfo", "--live"]), name
        for line in shown.splitlines():
            found = _ROW.match(line)
            if found and found[1] == row:
                return found[2]
        raise ChangeFailed(f"virsh shows no {name} of {change.subject} on {change.host}")

    def _virsh(self, change: Change, words: Sequence[str], host: str = "") -> str:
        domain = not_an_option(change.target, "domain")
        start = ["virsh", "--connect", self._uri(host or change.host), words[0], "--domain", domain]
        return self._run([*start, *words[1:]], PATIENCE_S)

    def _uri(self, host: str) -> str:
        if host not in self._uris:
            message = (
                f"no libvirt connection of {host} is known: name it in COTENANT_APPLY_URIS ({host}=qemu:///system)"
            )
            raise InvalidInput(message, field="host")
        return self._uris[host]


def _parsed(argv: tuple[str, ...]) -> tuple[ChangeKind, str, dict[str, str]]:
    """Kind, domain and texts by setting of a virsh command as `advisor.render.kvm` writes it."""
    refusal = InvalidInput(f"{' '.join(argv)[:200]!r} is not carried out by virsh: run it by hand", field="command")
    if argv[:1] != ("virsh",) or len(argv) < 2 or argv[1] not in _KINDS:
        raise refusal
    options: dict[str, list[str]] = {}
    words = iter(argv[2:])
    for word in words:
        if word != "--live":
            options.setdefault(word, []).append(next(words, ""))
    domain = options.get("--domain", [""])[0]
    match argv[1]:
        case "schedinfo":
            texts = dict(part.split("=", 1) for part in options.get("--set", []) if "=" in part)
        case "blkdeviotune":
            texts = {f"total_bytes_sec {options.get('--device', [''])[0]}": options.get("--total-bytes-sec", [""])[0]}
        case "emulatorpin":
            texts = {"emulatorpin": options.get("--cpulist", [""])[0]}
        case "domiftune":
            texts = {f"outbound {options.get('--interface', [''])[0]}": options.get("--outbound", [""])[0]}
        case which:
            number = options.get("--vcpu" if which == "vcpupin" else "--iothread", [""])[0]
            texts = {f"{which} {number}": options.get("--cpulist", [""])[0]}
    if not domain or not texts or not all(_SETTING.match(name) and _TEXT.match(text) for name, text in texts.items()):
        raise refusal
    return _PARAMETERS.get(next(iter(texts)), _KINDS[argv[1]]), domain, texts


def _ends(change: Change) -> tuple[str, str]:
    return change.before[HOST], change.after[HOST]


def _checked(name: str) -> str:
    if not _SETTING.match(name):
        raise InvalidInput(f"{name[:60]!r} is no setting of a domain that is changed here", field="command")
    return name


def _is_unlimited(quota: str) -> bool:
    return re.fullmatch(r"-?\d{1,20}", quota) is not None and not 0 <= int(quota) < _MOST_QUOTA


def _cpus(text: str) -> object:
    try:
        return parse_cpus(text)
    except ValueError:
        return text


def _open(reach: Reach) -> Executor:
    return Libvirt(reach.uris or {}, waiting=Waiting(reach.move_s))


EXECUTOR = ExecutorKind(_open, tools=("virsh",), moves=("kvm",))
