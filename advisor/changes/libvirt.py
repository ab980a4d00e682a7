"""Domains of libvirt, by `virsh` at the connection of their host: pins, shares, quota, limits of disks and interfaces
of what runs, and live migrations between two of these hosts.

Only what rendered commands set, with `--live`: a restart brings the defined state back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from advisor.changes.controller import HOST, ChangeFailed, Executor, ExecutorKind, Gone, Meaning, Reach
from advisor.changes.migrations import Migrations, Place, Waiting
from advisor.domain import Change, ChangeKind, Command, Host, Instance
from advisor.errors import InvalidInput
from advisor.render.names import domain_name, not_an_option
from profiler.acting.allowed import SettingGone, SettingNotSet, SettingRefused
from profiler.acting.domains import DomainSettings, Run, is_text, run_virsh
from profiler.observed import format_cpus

_COMMANDS = ("vcpupin", "emulatorpin", "iothreadpin", "schedinfo", "blkdeviotune", "domiftune")


class Libvirt:
    """Domains of the hosts whose connections are in `uris`."""

    def __init__(self, uris: Mapping[str, str], run: Run = run_virsh, waiting: Waiting | None = None) -> None:
        self._uris = dict(uris)
        self._run = run
        self._waiting = waiting or Waiting(Reach().move_s)
        self._migrations = Migrations(self, self._waiting)

    def meaning(self, host: Host, command: Command) -> Meaning:
        self._uri(host.id)
        return understand(host, command)

    def moving(self, instance: Instance, source: Host, target: Host) -> Meaning:
        for host in (source, target):
            self._uri(host.id)
        return Meaning("move", domain_name(instance), {HOST: source.id}, {HOST: target.id})

    def read(self, change: Change) -> Mapping[str, str]:
        if change.kind == "move":
            return self._migrations.read(change)
        with _said("target", change):
            return self._there(change.host).read(change.target, change.after)

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        if change.kind == "move":
            self._migrations.write(change, values)
            return
        with _said("command", change):
            self._there(change.host).write(change.target, values)

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
        with _said("target", change):
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
        return DomainSettings("").same(setting, one, other)

    def _virsh(self, change: Change, words: Sequence[str], host: str = "") -> str:
        with _said("target", change):
            return self._there(host or change.host).ask(change.target, words)

    def _there(self, host: str) -> DomainSettings:
        return DomainSettings(self._uri(host), self._run)

    def _uri(self, host: str) -> str:
        if host not in self._uris:
            message = (
                f"no libvirt connection of {host} is known: name it in COTENANT_APPLY_URIS ({host}=qemu:///system)"
            )
            raise InvalidInput(message, field="host")
        return self._uris[host]


def understand(host: Host, command: Command) -> Meaning:
    """What a rendered virsh command changes; InvalidInput for one that is not carried out."""
    kind, domain, after = _parsed(command.argv)
    _, same_domain, before = _parsed(command.undo)
    if (domain, list(before)) != (same_domain, list(after)):
        raise InvalidInput(f"{' '.join(command.argv)[:200]} sets something else than its undo", field="command")
    everywhere = format_cpus(tuple(host.cpus))  # what virsh takes `r` for, and shows
    before, after = (
        {name: everywhere if text == "r" else text for name, text in texts.items()} for texts in (before, after)
    )
    return Meaning(kind, domain, before, after)


def _parsed(argv: tuple[str, ...]) -> tuple[ChangeKind, str, dict[str, str]]:
    """Kind, domain and texts by setting of a virsh command as `advisor.render.kvm` writes it."""
    refusal = InvalidInput(f"{' '.join(argv)[:200]!r} is not carried out by virsh: run it by hand", field="command")
    if argv[:1] != ("virsh",) or len(argv) < 2 or argv[1] not in _COMMANDS:
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
    if not domain or not texts or not all(is_text(text) for text in texts.values()):
        raise refusal
    try:
        kinds = [DomainSettings("").kind(name) for name in texts]
    except SettingRefused:
        raise refusal from None
    return cast("ChangeKind", kinds[0]), domain, texts


def _ends(change: Change) -> tuple[str, str]:
    return change.before[HOST], change.after[HOST]


@contextmanager
def _said(field: str, change: Change) -> Iterator[None]:
    """Errors of virsh as those of the advisor, with what they are about."""
    try:
        yield
    except SettingGone as error:
        raise Gone(f"{change.subject} on {change.host}: {error}") from error
    except SettingNotSet as error:
        raise ChangeFailed(f"{change.subject} on {change.host}: {error}") from error
    except SettingRefused as error:
        raise InvalidInput(str(error), field=field) from error


def _open(reach: Reach) -> Executor:
    return Libvirt(reach.uris or {}, waiting=Waiting(reach.move_s))


EXECUTOR = ExecutorKind(_open, tools=("virsh",), moves=("kvm",), understand=understand)
