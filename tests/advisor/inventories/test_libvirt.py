"""libvirt: what virsh says of hosts and domains, how a domain is known again, and what a host that fails changes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain import Inventory
from advisor.inventories import libvirt as libvirt_facts
from advisor.inventories.libvirt import Libvirt, VirshError, ask, shown_uri, unattended
from advisor.inventories.reading import STOPPED_LOAD, Reading
from advisor.service import Advisor
from profiler.observed import Instance, IsolationSettings, NetworkSettings, Pinning

A, B, C = (f"6695eb01-f6a4-8304-79aa-97f2502e193{letter}" for letter in "abc")
NODEINFO = """CPU model:           x86_64
CPU(s):              8
CPU frequency:       2600 MHz
CPU socket(s):       1
Core(s) per socket:  4
Thread(s) per core:  2
NUMA cell(s):        1
Memory size:         16777216 KiB

"""


def _cells(*cells: str) -> str:
    reported = "".join(
        f"<cell id='{number}'><cpus>{''.join(f'<cpu id={cpu!r}/>' for cpu in cpus.split())}</cpus></cell>"
        for number, cpus in enumerate(cells)
    )
    return f"<capabilities><host><topology><cells>{reported}</cells></topology></host></capabilities>"


def _domain(name: str, vcpus: int = 2, more: str = "") -> str:
    return f"<domain><name>{name}</name><memory unit='MiB'>1024</memory><vcpu>{vcpus}</vcpu>{more}</domain>"


@dataclass
class Machine:
    """A host as virsh shows it: domains by UUID, each with its XML and its list."""

    name: str
    running: dict[str, str] = field(default_factory=dict)
    paused: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    driver: str = "qemu:///system"
    capabilities: str = _cells("0 1 2 3", "4 5 6 7")
    down: str = ""

    def answer(self, command: str) -> str:
        everyone = self.running | self.paused | self.stopped
        fixed = {
            "hostname": f"{self.name}\n", "uri": f"{self.driver}\n", "nodeinfo": NODEINFO,
            "capabilities": self.capabilities,
            "list --uuid --state-running": "\n".join(self.running),
            "list --uuid": "\n".join(self.running | self.paused),
            "list --uuid --inactive": "\n".join(self.stopped),
        }  # fmt: skip
        return fixed[command] if command in fixed else everyone.get(command.rsplit(maxsplit=1)[-1], "")


class Machines:
    """Hosts by their URI, in place of virsh."""

    def __init__(self, **machines: Machine) -> None:
        self.by_uri = {f"qemu+ssh://{name}/system": machine for name, machine in machines.items()}

    def ask(self, uri: str, commands: Sequence[str]) -> list[str]:
        machine = self.by_uri[uri]
        if machine.down:
            raise VirshError(machine.down)
        return [machine.answer(command) for command in commands]

    def read(self) -> Reading:
        return Libvirt(tuple(self.by_uri), ask_host=self.ask).read()


def _there(advisor: Advisor) -> dict[str, Instance]:
    return {one.id: one for one in advisor.cloud.inventory().instances}


def test_a_host_and_its_domains_become_facts() -> None:
    tuned = _domain(
        "web-1",
        4,
        "<cputune><vcpupin vcpu='0' cpuset='2-3'/><period>100000</period><quota>50000</quota></cputune><devices>"
        "<disk><iotune><total_bytes_sec>5000000</total_bytes_sec></iotune></disk>"
        "<interface><bandwidth><outbound average='1250'/></bandwidth></interface></devices>",
    )
    reading = Machines(a=Machine("kvm01", {A: tuned}, stopped={B: _domain("old")})).read()
    (host,) = reading.hosts
    assert (host["id"], host["kind"], host["pcpus"], host["memory_mb"]) == ("kvm01", "kvm", 8, 16384)
    assert (host["threads_per_core"], host["cpu_mhz"], host["numa"]) == (2, 2600, ((0, 1, 2, 3), (4, 5, 6, 7)))
    old, web = reading.instances
    assert (web["id"], web["host"], web["vcpus"], web["memory_mb"]) == ("web-1", "kvm01", 4, 1024)
    assert str(web["settings"]["pinning"]) == "0:2-3|1:|2:|3:"
    assert web["settings"]["cap_percent"] == 200
    assert web["settings"]["network"] == NetworkSettings("dedicated", 10.0)
    assert web["settings"]["disk_limit_mb_s"] == 5
    assert "load" not in web
    assert old["load"] == STOPPED_LOAD


def test_a_quota_that_stands_for_none_and_the_domains_cpuset_are_read_as_libvirt_means_them() -> None:
    text = _domain("web", 2, "<cputune><vcpupin vcpu='1' cpuset='6'/><quota>17592186044415</quota></cputune>")
    (facts,) = Machines(a=Machine("kvm01", {A: text.replace("<vcpu", "<vcpu cpuset='2-3'", 1)})).read().instances
    assert facts["settings"]["cap_percent"] is None
    assert str(facts["settings"]["pinning"]) == "0:2-3|1:6"


def test_huge_pages_are_a_pool_of_the_host_and_what_a_domain_needs_of_it() -> None:
    pages = "<pages unit='KiB' size='4'>2000000</pages><pages unit='KiB' size='2048'>1024</pages>"
    capabilities = _cells("0 1 2 3", "4 5 6 7").replace("<cpus>", f"{pages}<cpus>")  # 2 GB in each of two cells
    huge = "<memoryBacking><hugepages>{}</hugepages></memoryBacking>"
    domains = {A: _domain("db", more=huge.format("")), B: _domain("web"), C: _domain("big", more=huge.format(
        "<page size='1' unit='GiB'/>"))}  # fmt: skip
    reading = Machines(a=Machine("kvm01", domains, capabilities=capabilities)).read()
    (host,) = reading.hosts
    assert (host["memory_mb"], host["labels"]["has.hugepages_2mib"]) == (16384, "2048")
    rules = {one["id"]: {name: text for name, text in one["labels"].items() if "." in name} for one in
             reading.instances}  # fmt: skip
    assert rules == {"db": {"needs.hugepages_2mib": "512"}, "web": {}, "big": {"needs.hugepages_1gib": "1"}}


def _with_cpu(name: str, *features: str) -> str:
    listed = "".join(f"<feature name={one!r}/>" for one in features)
    cpu = f"<cpu><arch>x86_64</arch><model>{name}</model><vendor>AMD</vendor>{listed}</cpu>"
    return _cells("0 1 2 3", "4 5 6 7").replace("<host>", f"<host>{cpu}")


def _cpu_domain(name: str, mode: str, model: str = "", *features: str) -> str:
    listed = "".join(f"<feature policy='require' name={one!r}/>" for one in features)
    return _domain(name, more=f"<cpu mode={mode!r}>{f'<model>{model}</model>' if model else ''}{listed}</cpu>")


class Compared(Machines):
    """Hosts that compare CPUs as virsh does: `knows` are the models and features of each."""

    def __init__(self, knows: dict[str, set[str]], **machines: Machine) -> None:
        super().__init__(**machines)
        self.knows, self.compared = knows, 0

    def ask(self, uri: str, commands: Sequence[str]) -> list[str]:
        if not commands[0].startswith("cpu-compare"):
            return super().ask(uri, commands)
        self.compared += 1
        text = Path(commands[0].partition(" ")[2].strip("'")).read_text("utf-8")
        asked = {*re.findall(r"<model>(.*?)</model>", text), *re.findall(r"name='(.*?)'", text)}
        if not asked <= self.knows[self.by_uri[uri].name]:
            return ["CPU described in /tmp/x.xml is incompatible with host CPU\n"]
        return ["Host CPU is a superset of CPU described in /tmp/x.xml\n"]


def test_domains_go_where_the_cpus_are_that_they_require() -> None:
    there = {A: _cpu_domain("all", "host-passthrough"), C: _cpu_domain("old", "custom", "EPYC"),
             B: _cpu_domain("rome", "custom", "EPYC-Rome", "avx512f", "x2apic")}  # fmt: skip
    new, older = _with_cpu("EPYC-Milan", "avx512f"), _with_cpu("EPYC-Rome")
    knows = {"kvm01": {"EPYC", "EPYC-Rome", "avx512f"}, "kvm02": {"EPYC", "EPYC-Rome"}}
    cloud = Compared(knows, a=Machine("kvm01", there, capabilities=new), b=Machine("kvm02", capabilities=older))
    source = Libvirt(tuple(cloud.by_uri), ask_host=cloud.ask)
    reading = source.read()
    hosts = {str(one["id"]): one["labels"]["cpu_host"] for one in reading.hosts}
    assert len(set(hosts.values())) == 2
    rules = {one["id"]: {name: text for name, text in one["labels"].items() if "cpu" in name} for one in
             reading.instances}  # fmt: skip
    mine = hosts["kvm01"]
    assert rules == {"all": {"require.cpu_host": mine}, "rome": {"require_any.cpu_host": mine}, "old": {}}
    asked = cloud.compared
    assert source.read().instances == reading.instances
    assert cloud.compared == asked  # what was compared once is known


def test_hosts_alike_have_no_rules_about_cpus_and_a_comparison_that_fails_is_none() -> None:
    there = {A: _cpu_domain("all", "host-passthrough"), B: _cpu_domain("rome", "custom", "EPYC-Rome")}
    cpu = _with_cpu("EPYC-Rome")
    alike = Compared({}, a=Machine("kvm01", there, capabilities=cpu), b=Machine("kvm02", capabilities=cpu))
    assert not any("cpu" in name for one in alike.read().instances for name in one["labels"])
    other = Machine("kvm02", capabilities=_with_cpu("EPYC"))
    silent = Compared({"kvm01": set(), "kvm02": set()}, a=Machine("kvm01", there, capabilities=cpu), b=other)
    rome = next(one for one in silent.read().instances if one["id"] == "rome")
    assert not any("cpu" in name for name in rome["labels"])  # its own host is said to lack what it has there


def test_names_of_other_scripts_are_kept_as_labels_and_instances_are_found_by_them(advisor: Advisor) -> None:
    names = {A: "Склад (новый) №3", B: "数据库-主", C: "plain-1"}
    cloud = Machines(a=Machine("hyper-ß", {uuid: _domain(name) for uuid, name in names.items()}))
    advisor.inventory.follow(cloud.read())
    assert advisor.inventory.find_host("hyper-ß").labels["name"] == "hyper-ß"
    for uuid, name in names.items():
        found = advisor.inventory.find_instance(name)
        assert (found.labels["uuid"], found.labels.get("name", found.id)) == (uuid, name)
    assert "name" not in advisor.inventory.instance("plain-1").labels


@pytest.mark.parametrize("capabilities", ["", "<no", _cells("0 1", "1 9"), "<!DOCTYPE x><capabilities/>"])
def test_a_host_of_containers_whose_numa_nodes_make_no_sense_is_read_without_them(capabilities: str) -> None:
    (host,) = Machines(a=Machine("box", capabilities=capabilities, driver="lxc:///system")).read().hosts
    assert (host["kind"], "numa" in host) == ("lxc", False)


def _pinned(name: str, *cpus: str) -> str:
    pins = "".join(f"<vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>" for vcpu, cpu in enumerate(cpus))
    return _domain(name, len(cpus), f"<cputune>{pins}</cputune>")


def test_a_host_whose_cpu_numbers_have_gaps_keeps_its_pins(advisor: Advisor) -> None:
    power = Machine("power", {A: _pinned("hot", "40", "41,48"), B: _domain("cool")})
    power.capabilities = _cells("0 1 8 9", "40 41 48 49")
    cloud = Machines(a=power, b=Machine("plain", {C: _pinned("web", "6")}))
    for _ in range(2):
        assert advisor.inventory.follow(cloud.read()).left_out == ()
        host = advisor.inventory.host("power")
        assert (host.pcpus, host.cpu_ids) == (8, (0, 1, 8, 9, 40, 41, 48, 49))
        assert host.numa == ((0, 1, 8, 9), (40, 41, 48, 49))
        assert advisor.inventory.host("plain").cpu_ids == ()
        pins = {name: one.settings.pinning for name, one in _there(advisor).items()}
        assert {name: str(pin or "") for name, pin in pins.items()} == {"hot": "0:40|1:41,48", "cool": "", "web": "0:6"}
    power.capabilities = _cells("0 1 2 3", "4 5 6 7")
    power.running[A] = _pinned("hot", "3", "4")
    assert advisor.inventory.follow(cloud.read()).left_out == ()
    assert advisor.inventory.host("power").cpu_ids == ()
    assert str(_there(advisor)["hot"].settings.pinning) == "0:3|1:4"


def test_cpus_that_are_offline_are_none_of_the_hosts(advisor: Advisor) -> None:
    there = "".join(
        f"<cpu id='{cpu}' siblings='{cpu}'/>" if cpu % 2 == 0 else f"<cpu id='{cpu}'/>" for cpu in range(16)
    )
    cells = f"<cells><cell id='0'><cpus>{there}</cpus></cell></cells>"
    smt_off = Machine("off", {A: _pinned("web", "14")})
    smt_off.capabilities = f"<capabilities><host><topology>{cells}</topology></host></capabilities>"
    advisor.inventory.follow(Machines(a=smt_off).read())
    assert advisor.inventory.host("off").cpu_ids == tuple(range(0, 16, 2))
    assert str(_there(advisor)["web"].settings.pinning) == "0:14"


def test_cores_with_several_threads_are_read_where_numbers_do_not_say_them(advisor: Advisor) -> None:
    def cells(*siblings: str) -> str:
        cpus = "".join(f"<cpu id='{cpu}' siblings='{said}'/>" for cpu, said in enumerate(siblings))
        inside = f"<topology><cells><cell id='0'><cpus>{cpus}</cpus></cell></cells></topology>"
        return f"<capabilities><host>{inside}</host></capabilities>"

    machine = Machine("desk")
    for said, siblings in (
        (("0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"), ((0, 1), (2, 3))),
        (("0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"), ()),  # as Linux numbers them
        (("0-1", "1-2", "2", "3", "4", "5", "6", "7"), ()),  # contradicts itself
    ):
        machine.capabilities = cells(*said)
        assert advisor.inventory.follow(Machines(a=machine).read()).left_out == ()
        host = advisor.inventory.host("desk")
        assert (host.siblings, host.threads_per_core) == (siblings, 2)


def test_a_pin_to_a_cpu_that_the_host_lacks_ends_with_a_sentence_and_all_else_is_taken(advisor: Advisor) -> None:
    small = Machine("small", {A: _pinned("gone", "9", "9"), B: _pinned("part", "7-9", "3")})
    news = advisor.inventory.follow(Machines(a=small, b=Machine("other", {C: _pinned("web", "6")})).read())
    assert sorted(one.id for one in advisor.cloud.inventory().hosts) == ["other", "small"]
    pins = {name: str(one.settings.pinning or "") for name, one in _there(advisor).items()}
    assert pins == {"gone": "", "part": "0:7|1:3", "web": "0:6"}
    assert len(news.left_out) == 2
    assert all("small has 0-7" in sentence for sentence in news.left_out)


def test_an_instance_that_was_written_down_does_not_block_the_host_that_lost_its_cpu(advisor: Advisor) -> None:
    big = Machine("kvm01")
    cloud = Machines(a=big, b=Machine("kvm02", {C: _domain("web")}))
    advisor.inventory.follow(cloud.read())
    own = Instance("own", host="kvm01", settings=IsolationSettings(Pinning(((7,),))))
    advisor.inventory.put(Inventory(instances=(own,)), mode="merge", generation=None)
    big.capabilities = _cells("0 1 2 3", "4 5 6 8")
    news = advisor.inventory.follow(cloud.read())
    assert advisor.inventory.host("kvm01").cpu_ids == (0, 1, 2, 3, 4, 5, 6, 8)
    assert _there(advisor)["own"].settings.pinning is None
    assert any("own" in sentence for sentence in news.left_out)


def test_a_domain_that_may_run_on_every_cpu_by_its_pins_is_not_pinned(advisor: Advisor) -> None:
    advisor.inventory.follow(Machines(a=Machine("kvm01", {A: _pinned("web", "0-7", "0-7")})).read())
    assert _there(advisor)["web"].settings.pinning is None


def test_a_domain_moves_changes_and_vanishes(advisor: Advisor) -> None:
    cloud = Machines(a=Machine("kvm01", {A: _domain("web"), B: _domain("db")}), b=Machine("kvm02"))
    advisor.inventory.follow(cloud.read())
    assert {name: one.host for name, one in _there(advisor).items()} == {"web": "kvm01", "db": "kvm01"}
    first, second = cloud.by_uri.values()
    second.running[A] = _domain("web", 3)
    first.stopped[A] = first.running.pop(A)  # its definition stays behind
    del first.running[B]
    advisor.inventory.follow(cloud.read())
    (web,) = _there(advisor).values()
    assert (web.id, web.host, web.vcpus, web.load) == ("web", "kvm02", 3, 1.0)


def test_while_it_moves_a_domain_counts_where_it_runs() -> None:
    cloud = Machines(a=Machine("kvm01", paused={A: _domain("web")}), b=Machine("kvm02", {A: _domain("web")}))
    (web,) = cloud.read().instances
    assert web["host"] == "kvm02"


def test_nothing_is_gone_while_a_host_is_not_read_or_not_named(advisor: Advisor) -> None:
    cloud = Machines(a=Machine("kvm01", {A: _domain("web")}), b=Machine("kvm02", {B: _domain("db")}))
    advisor.inventory.follow(cloud.read())
    first, second = cloud.by_uri.values()
    second.down = "no route to host"
    first.running.clear()
    first.running[C] = _domain("new")
    reading = cloud.read()
    assert [(part.state, part.reason) for part in reading.parts] == [("read", ""), ("failed", "no route to host")]
    advisor.inventory.follow(reading)
    assert set(_there(advisor)) == {"web", "db", "new"}
    advisor.inventory.follow(Machines(b=Machine("kvm02", {B: _domain("db")})).read())
    assert set(_there(advisor)) == {"web", "db", "new"}, "of kvm01, which is not named any more"


def test_two_domains_of_one_name_stay_two(advisor: Advisor) -> None:
    cloud = Machines(a=Machine("kvm01", {A: _domain("router")}), b=Machine("kvm02"))
    advisor.inventory.follow(cloud.read())
    list(cloud.by_uri.values())[1].running[B] = _domain("router")
    for _ in range(2):
        news = advisor.inventory.follow(cloud.read())
        found = _there(advisor)
        assert {name: one.host for name, one in found.items()} == {"router": "kvm01", B: "kvm02"}
    assert news.is_nothing
    assert found[B].labels["domain"] == "router"


def test_a_domain_that_an_agent_announced_is_the_same_instance(advisor: Advisor) -> None:
    announced = Instance("seen", labels={"uuid": A, "source": "agent"})
    advisor.inventory.put(Inventory(instances=(announced,)), mode="merge", generation=None)
    advisor.inventory.follow(Machines(a=Machine("kvm01", {A: _domain("renamed")})).read())
    (one,) = _there(advisor).values()
    assert (one.id, one.host, one.labels["domain"]) == ("seen", "kvm01", "renamed")


def test_one_host_by_two_uris_is_said_and_read_once() -> None:
    reading = Machines(a=Machine("same", {A: _domain("web")}), b=Machine("same")).read()
    assert [part.state for part in reading.parts] == ["read", "failed"]
    assert "it is host same, as qemu+ssh://a/system is" in reading.parts[1].reason
    assert len(reading.hosts) == len(reading.instances) == 1


def test_a_domain_that_cannot_be_read_stays_and_is_said(advisor: Advisor) -> None:
    cloud = Machines(a=Machine("kvm01", {A: _domain("web"), B: _domain("db")}))
    advisor.inventory.follow(cloud.read())
    cloud.by_uri["qemu+ssh://a/system"].running[A] = "<domain><name>web</name>"
    news = advisor.inventory.follow(cloud.read())
    assert set(_there(advisor)) == {"web", "db"}
    assert A in news.left_out[0]


def test_neither_user_nor_parameters_of_a_uri_are_shown_and_ssh_does_not_prompt() -> None:
    assert shown_uri("qemu+ssh://root:secret@kvm01/system?keyfile=x") == "qemu+ssh://kvm01/system"
    assert unattended("qemu+ssh://a/system") == "qemu+ssh://a/system?no_tty=1"
    assert unattended("qemu+ssh://a/system?keyfile=k") == "qemu+ssh://a/system?keyfile=k&no_tty=1"
    assert unattended("qemu:///system") == "qemu:///system"


@given(st.lists(st.text(max_size=60) | st.sampled_from([A, NODEINFO, "kvm01", "qemu:///system"]), min_size=9))
def test_whatever_a_host_answers_reading_never_raises(answers: list[str]) -> None:
    def anything(_uri: str, commands: Sequence[str]) -> list[str]:
        return [answers[number % len(answers)] for number in range(len(commands))]

    reading = Libvirt(("qemu:///system",), ask_host=anything).read()
    assert len(reading.parts) == 1


@given(st.text(max_size=80), st.text(max_size=200))
def test_whatever_a_domain_is_reading_never_raises(name: str, xml: str) -> None:
    machine = Machine(f"h{name}", {A: xml, B: _domain("good", more=f"<title>{name}</title>")}, capabilities=xml)
    assert Machines(a=machine).read().parts


@pytest.mark.skipif(shutil.which("virsh") is None, reason="needs virsh (apt-get install libvirt-clients)")
class TestWithVirsh:
    """libvirt's own test driver, which is in virsh: a host with one domain, both made up by libvirt."""

    def test_its_host_and_domain_are_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(libvirt_facts, "KINDS", {"test": "kvm"})
        reading = Libvirt(("test:///default",)).read()
        assert reading.complete, reading.parts
        (host,), (one,) = reading.hosts, reading.instances
        assert (host["pcpus"], host["memory_mb"]) == (16, 3072)
        assert (one["id"], one["host"], one["vcpus"], one["memory_mb"]) == ("test", host["id"], 2, 2048)

    def test_a_domain_that_is_gone_meanwhile_has_an_empty_answer(self) -> None:
        gone, name = ask("test:///default", [f"dumpxml --domain {A}", "uri"])
        assert (gone.strip(), name.strip()) == ("", "test:///default")

    def test_a_host_that_cannot_be_reached_is_a_part_that_failed(self) -> None:
        (part,) = Libvirt(("qemu+unix:///system?socket=/nonexistent/socket",)).read().parts
        assert part.state == "failed"
        assert "/nonexistent/socket" in part.reason


def test_without_virsh_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (part,) = Libvirt(("qemu:///system",)).read().parts
    assert "apt-get install libvirt-clients" in part.reason
