"""Hosts under libvirt and their guests, read through the command `virsh`; many hosts, several at once."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from advisor.domain.rules import ANY
from advisor.errors import InvalidInput
from advisor.inventories.reading import STOPPED_LOAD, Facts, Part, Reading, taken
from advisor.inventories.systems import InventorySystem
from profiler import host_kinds
from profiler.backends.libvirt.guests import cap_percent, disk_limit_mb_s, network, pinning
from profiler.host_kinds import Groups, HostKind, as_said
from profiler.names import instance_id, name_label
from profiler.observed import REQUIRE_LABEL
from profiler.parse.libvirt import ORDINARY_CPU, CpuNeed, DomainDescription, parse_domain
from profiler.parse.text import ParseError
from profiler.parse.xen import parse_cells, parse_cpu_name, parse_huge_pages, parse_nodeinfo, parse_siblings

# Runs `virsh` read-only: several of its commands over one connection, and the answer of each.

TIMEOUT_S = 60.0  # for one run; libvirt itself gives up on a host that does not answer after about 30 s
_LONGEST_REASON = 200


class VirshError(Exception):
    """A host that gave no answer; the message says why."""


def ask(uri: str, commands: Sequence[str], timeout_s: float = TIMEOUT_S) -> list[str]:
    """The output of each command, empty where it failed; VirshError where the host cannot be asked at all.

    `commands` are lines of virsh (virsh(1), "name arguments"), made here: nothing from outside but UUIDs that were
    checked. A line with a random word stands between two answers, so that no answer can pass for two.
    """
    mark = secrets.token_hex(16)
    script = "; ".join(f"{command}; echo {mark}" for command in commands)
    output, errors = _run(["virsh", "--readonly", "--quiet", "--connect", unattended(uri), script], timeout_s)
    answers = output.split(mark)
    if len(answers) != len(commands) + 1:
        raise VirshError(_reason(errors) or "virsh gave no answer")
    return answers[:-1]


def unattended(uri: str) -> str:
    """The URI with no_tty=1 where the program ssh is the transport: it then fails where it would ask for a password."""
    scheme = uri.partition(":")[0]
    if not scheme.endswith("+ssh") or "no_tty=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}no_tty=1"


def _run(argv: list[str], timeout_s: float) -> tuple[str, str]:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}  # virsh translates the names of what it prints
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError:
        raise VirshError("virsh is not installed (Debian and Ubuntu: apt-get install libvirt-clients)") from None
    except (OSError, ValueError) as error:
        raise VirshError(f"virsh cannot be run: {error}"[:_LONGEST_REASON]) from None
    try:
        return process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise VirshError(f"no answer in {timeout_s:g} s") from None
    finally:
        if process.poll() is None:  # and ssh with it, which virsh started
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _reason(errors: str) -> str:
    """The last thing that went wrong, on one line; "failed to connect" stands before its reason."""
    lines = [line.strip().removeprefix("error: ") for line in errors.splitlines() if line.strip()]
    reasons = [line for line in lines if line != "failed to connect to the hypervisor"]
    reason = "".join(char if char.isprintable() else " " for char in (reasons or lines or [""])[0])
    return reason[:_LONGEST_REASON]


# Where the CPUs are that a domain requires: libvirt itself compares what a domain has with each kind of CPU.

Ask = Callable[[str, Sequence[str]], list[str]]
CPU = "cpu_host"  # label of a host: hosts with the same one have the same CPUs to libvirt
CPU_LABELS = frozenset({CPU, f"{REQUIRE_LABEL}{CPU}", f"{ANY}{CPU}"})
_MOST_NAMED = 4  # kinds of CPUs in one label; a name has at most 49 characters
# What KVM gives a guest on any host, so that a comparison with the bare machine would miss it (KVM_GET_EMULATED_CPUID).
_EMULATED = frozenset({"hypervisor", "x2apic", "tsc-deadline", "tsc_adjust", "arat", "cmp_legacy", "umip"})


def cpu_name(capabilities: str) -> str:
    """The name of a host's CPUs; empty where none is reported."""
    try:
        return parse_cpu_name(capabilities)
    except ParseError:
        return ""


class CpuRules:
    """Which kinds of CPUs suit which domains; what libvirt answered once is kept, because neither changes."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._hosts: dict[str, str] = {}  # name of its CPUs by the URI of the host
        self._suits: dict[tuple[CpuNeed, str], bool | None] = {}  # None = libvirt did not say

    def add_host(self, uri: str, name: str) -> None:
        """Take note of a host, also of one that does not answer the next time."""
        self._hosts[uri] = name

    @property
    def _names(self) -> list[str]:
        return sorted(set(filter(None, self._hosts.values())))

    def of_host(self, name: str) -> dict[str, str]:
        """The label of a host where not all hosts are alike."""
        return {CPU: name} if name and len(self._names) > 1 else {}

    def of_domain(self, need: CpuNeed, own: str) -> dict[str, str]:
        """The rule of a domain on a host with these CPUs; nothing where it may run on all, or libvirt does not say."""
        names = self._names
        if len(names) < 2 or not own or not (need.whole_host or need.model):
            return {}
        if need.whole_host:
            return {f"{REQUIRE_LABEL}{CPU}": own}
        fits = [name for name in names if name == own or self._fits(need, name)]
        if not self._fits(need, own) or len(fits) == len(names):
            return {}  # it runs there: a comparison that denies that says nothing about others
        return {f"{ANY}{CPU}": ", ".join([own, *(name for name in fits if name != own)][:_MOST_NAMED])}

    def _fits(self, need: CpuNeed, name: str) -> bool:
        if (need, name) not in self._suits:
            self._suits[need, name] = self._compared(need, name)
        return self._suits[need, name] is not False

    def _compared(self, need: CpuNeed, name: str) -> bool | None:
        """What `virsh cpu-compare` says of one host with these CPUs; the read-only connection allows nothing finer."""
        uri = next(uri for uri, other in self._hosts.items() if other == name)
        features = "".join(f"<feature policy='require' name='{one}'/>" for one in need.features if one not in _EMULATED)
        with tempfile.TemporaryDirectory(prefix="cotenant-cpu-") as folder, suppress(VirshError, OSError):
            file = Path(folder) / "cpu.xml"
            file.write_text(f"<cpu mode='custom' match='exact'><model>{need.model}</model>{features}</cpu>", "utf-8")
            (answer,) = self._ask(uri, [f"cpu-compare '{file}'"])
            words = answer.lower()
            if "incompatible" in words:
                return False
            return True if "superset" in words or "identical" in words else None
        return None


# What virsh says of a host and of its domains, as facts; no I/O.

KINDS: Mapping[str, HostKind] = {"qemu": "kvm", "lxc": "lxc"}  # by the scheme of a URI, without its transport
OWN_LABELS = host_kinds.LABELS | {
    "source", "uuid", "domain", "name", "title", "image", "flavor_name", "project", "vcpu_ids",
}  # fmt: skip


def host_facts(hostname: str, uri: str, nodeinfo: str, capabilities: str, source: str) -> Facts:
    """A host by the answers of hostname, uri, nodeinfo and capabilities; ValueError says what is not as it should be.

    Its id is its name, as an agent there gives it unless it is configured with another one.
    """
    scheme = uri.strip().partition(":")[0].partition("+")[0]
    if scheme not in KINDS:
        raise ValueError(f"libvirt's driver {scheme[:20]!r} is none of {', '.join(sorted(KINDS))}")
    name = hostname.strip()
    if not name:
        raise ValueError("it did not report its hostname")
    node = parse_nodeinfo(nodeinfo)
    facts: dict[str, object] = {
        "id": instance_id(name),
        "kind": KINDS[scheme],
        "pcpus": node.cpus,
        "memory_mb": node.memory_mb,
        "threads_per_core": node.threads_per_core,
        "labels": {"source": source, **name_label(name), **host_kinds.pools(_pools(capabilities))},
    }
    if node.mhz:
        facts["cpu_mhz"] = node.mhz
    try:
        cells = parse_cells(capabilities)
    except ParseError:
        return facts  # a host without its NUMA nodes is better than none
    cpus = sorted({cpu for cell in cells for cpu in cell})
    if len(cpus) == node.cpus == sum(map(len, cells)):
        facts["cpu_ids"] = () if cpus == list(range(node.cpus)) else tuple(cpus)
        if len(cells) > 1:
            facts["numa"] = cells
        with suppress(ValueError):  # of a host whose answers contradict themselves the numbers say which are siblings
            facts["siblings"] = _siblings(capabilities, cpus, cells)
    return facts


def _siblings(capabilities: str, cpus: Sequence[int], cells: Groups) -> Groups:
    """The CPUs of each core that has several, without those that are not there."""
    there = frozenset(cpus)
    cores = (tuple(cpu for cpu in core if cpu in there) for core in parse_siblings(capabilities))
    return as_said("", len(cpus), tuple(cpus), cells, cores)[1]


def _pools(capabilities: str) -> dict[int, int]:
    with suppress(ParseError):  # a host without its huge pages is better than none
        return parse_huge_pages(capabilities)
    return {}


def described(xml: str) -> DomainDescription:
    """What a domain's XML says; ValueError says what is wrong there."""
    found = parse_domain(xml)
    if not found.name:
        raise ValueError("line 1: no element name")
    return found


def instance_facts(uuid: str, described: DomainDescription, host: Facts, source: str, *, runs: bool) -> Facts:
    """A domain by what its XML says and by its host. Its weight is not reported: what the number means depends on the
    version of the host's control groups."""
    pages = {} if described.huge_page_kib is None else _pages(described, host["labels"])
    facts: dict[str, object] = {
        "id": instance_id(described.name),
        "host": host["id"],
        "vcpus": described.vcpus,
        "memory_mb": described.memory_mb,
        "settings": {
            "pinning": pinning(described, host.get("cpu_ids") or range(host["pcpus"])),
            "cap_percent": cap_percent(described.quotas, described.vcpus),
            "network": network(described.bandwidths),
            "disk_limit_mb_s": disk_limit_mb_s(described.disk_limits),
        },
        "labels": {"source": source, "uuid": uuid, **name_label(described.name), **described.labels, **pages},
    }
    return facts if runs else {**facts, "load": STOPPED_LOAD}


def _pages(described: DomainDescription, labels: Mapping[str, str]) -> dict[str, str]:
    """How many huge pages it needs. The host's default size is not reported: it is that of its only pool, or 2 MiB."""
    if described.huge_page_kib:
        return host_kinds.needs(described.memory_mb, described.huge_page_kib)
    pools = [mb for name, mb in host_kinds.PAGES_MB.items() if f"{host_kinds.HAS}{name}" in labels]
    kib = int(pools[0] * 1024) if len(pools) == 1 else host_kinds.DEFAULT_KIB
    return host_kinds.needs(described.memory_mb, kib)


# libvirt as a source: many hosts, each asked by itself, several at once.

NAME = "libvirt"
DEFAULT_URI = "qemu:///system"
AT_ONCE = 8  # hosts: each is a virsh and, over ssh, an ssh beside it
MOST_DOMAINS = 5000  # on one host; a list that is longer is not a list of domains
_LONGEST_URI = 1000
_AT_A_TIME = 200  # domains whose XML one virsh asks for: an argument has at most 128 KiB (execve(2))
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_HOST = ("hostname", "uri", "nodeinfo", "capabilities")
_LISTS = ("list --uuid --state-running", "list --uuid", "list --uuid --inactive")
_STOPPED, _ACTIVE, _RUNNING = range(3)


@dataclass(slots=True)
class _Answer:
    """What one host reported: itself, and its domains by UUID with how alive each is."""

    part: Part
    host: Facts | None = None
    domains: dict[str, tuple[int, Facts]] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)
    uri: str = ""
    cpu: str = ""  # a name for its CPUs
    cpus: dict[str, CpuNeed] = field(default_factory=dict)  # what each domain requires of them


class Libvirt:
    """Reads all hosts and domains each time: libvirt does not tell over virsh what has changed."""

    def __init__(self, uris: Sequence[str] = (), *, ask_host: Ask = ask) -> None:
        self.uris = tuple(dict.fromkeys(uris)) or (os.environ.get("LIBVIRT_DEFAULT_URI") or DEFAULT_URI,)
        for uri in self.uris:
            if not uri or uri.startswith("-") or not uri.isprintable() or " " in uri or len(uri) > _LONGEST_URI:
                message = f"{uri[:60]!r} is not a URI of libvirt; write it as qemu+ssh://root@kvm01/system"
                raise InvalidInput(message, field="uri")
        self._ask = ask_host
        self._cpus = CpuRules(ask_host)

    def read(self) -> Reading:
        """Read every host; one that does not answer is a part that failed, and nothing on any host is gone then: what
        is missing elsewhere may have moved there."""
        with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(self.uris)), thread_name_prefix="libvirt") as pool:
            answers = list(pool.map(self._host, self.uris))
        hosts: dict[str, str] = {}
        for number, answer in enumerate(answers):
            if answer.host is None:
                continue
            first = hosts.setdefault(str(answer.host["id"]), answer.part.name)
            if first != answer.part.name:
                reason = f"it is host {answer.host['id']}, as {first} is; name each host once, and give it a name"
                answers[number] = _Answer(Part(answer.part.name, "failed", reason=reason))
        answered = [answer for answer in answers if answer.host is not None]
        self._add_cpu_rules(answered)
        left_out = [sentence for answer in answered for sentence in answer.left_out]
        instances = _each_once(answered, left_out)
        return Reading(
            source=NAME,
            parts=tuple(answer.part for answer in answers),
            hosts=tuple(answer.host for answer in answered if answer.host is not None),
            instances=tuple(instances),
            every_instance=len(answered) == len(answers),
            unclear=frozenset(uuid for answer in answered for uuid in answer.unclear),
            own_labels=OWN_LABELS | CPU_LABELS,
            left_out=tuple(left_out),
            covers=frozenset(str(answer.host["id"]) for answer in answered if answer.host is not None),
        )

    def _add_cpu_rules(self, answers: Sequence[_Answer]) -> None:
        """Labels for where the CPUs are that domains require, where hosts differ."""
        for answer in answers:
            self._cpus.add_host(answer.uri, answer.cpu)
        for answer in answers:
            if answer.host is not None:
                answer.host["labels"].update(self._cpus.of_host(answer.cpu))
            for uuid, (_, facts) in answer.domains.items():
                facts["labels"].update(self._cpus.of_domain(answer.cpus.get(uuid, ORDINARY_CPU), answer.cpu))

    def _host(self, uri: str) -> _Answer:
        shown = shown_uri(uri)
        try:
            return self._read(uri, shown)
        except (VirshError, ValueError) as error:
            return _Answer(Part(shown, "failed", reason=" ".join(str(error).split())[:300]))

    def _read(self, uri: str, shown: str) -> _Answer:
        *about_host, running, active, stopped = self._ask(uri, (*_HOST, *_LISTS))
        hostname, driver, nodeinfo, capabilities = about_host
        host = host_facts(hostname, driver, nodeinfo, capabilities, NAME)
        states = {
            **dict.fromkeys(_uuids(stopped), _STOPPED),
            **dict.fromkeys(_uuids(active), _ACTIVE),
            **dict.fromkeys(_uuids(running), _RUNNING),
        }
        if len(states) > MOST_DOMAINS:
            raise ValueError(f"it reports {len(states)} domains, more than {MOST_DOMAINS}")
        answer = _Answer(Part(shown, "read", rows=len(states)), host, uri=uri)

        def facts(uuid: str, xml: str) -> Facts:
            domain = described(xml)
            answer.cpus[uuid] = domain.cpu if states[uuid] != _STOPPED else ORDINARY_CPU
            return instance_facts(uuid, domain, host, NAME, runs=states[uuid] != _STOPPED)

        definitions = self._definitions(uri, list(states))
        instances = taken(definitions, facts, answer.left_out, lambda uuid, _: f"domain {uuid} on {host['id']}")
        answer.cpu = cpu_name(capabilities)
        answer.domains = {uuid: (states[uuid], domain) for uuid, domain in instances.items()}
        answer.unclear = states.keys() - instances.keys()
        return answer

    def _definitions(self, uri: str, uuids: list[str]) -> Mapping[str, str]:
        definitions: dict[str, str] = {}
        for start in range(0, len(uuids), _AT_A_TIME):
            part = uuids[start : start + _AT_A_TIME]
            definitions |= zip(part, self._ask(uri, [f"dumpxml --domain {uuid}" for uuid in part]), strict=True)
        return definitions


def shown_uri(uri: str) -> str:
    """The URI without its parameters and without what stands before the host, where a password could be."""
    plain = uri.partition("?")[0]
    scheme, separator, rest = plain.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{separator}{place.rpartition('@')[2]}{slash}{path}"


def _uuids(listed: str) -> list[str]:
    return [word for word in listed.split() if _UUID.match(word)]


def _each_once(answers: Sequence[_Answer], left_out: list[str]) -> list[Facts]:
    """Every domain where it runs: while it moves it is on two hosts, and some leave their definition behind."""
    domains: dict[str, tuple[int, Facts]] = {}
    for answer in answers:
        for uuid, (state, facts) in answer.domains.items():
            former = domains.get(uuid)
            if former is not None and state == former[0] != _STOPPED:
                left_out.append(
                    f"{facts['id']} ({uuid}) is active on {former[1]['host']} and on {facts['host']}; "
                    f"it counts on {former[1]['host']}"
                )
            if former is None or state > former[0]:
                domains[uuid] = state, facts
    return [facts for _, facts in domains.values()]


SYSTEM = InventorySystem(Libvirt, takes=("uris",))
