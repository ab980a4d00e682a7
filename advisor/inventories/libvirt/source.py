"""libvirt as a source: many hosts, each asked by itself, several at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from advisor.errors import InvalidInput
from advisor.inventories.libvirt.cpus import CPU_LABELS, CpuRules, cpu_name
from advisor.inventories.libvirt.facts import OWN_LABELS, described, host_facts, instance_facts
from advisor.inventories.libvirt.virsh import VirshError, ask
from advisor.inventories.reading import Facts, Part, Reading, taken
from profiler.parse.libvirt import ORDINARY_CPU, CpuNeed

Ask = Callable[[str, Sequence[str]], list[str]]
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
            raise ValueError(f"it tells of {len(states)} domains, more than {MOST_DOMAINS}")
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
