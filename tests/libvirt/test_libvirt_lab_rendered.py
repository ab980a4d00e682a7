"""Rendered virsh commands on real guests: limits measured, pins seen in /proc, undo compared, definitions started."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from advisor.domain import Command
from advisor.render import commands, plan
from lab import processes
from lab.errors import LabError
from lab.processes import wait_until
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning, parse_cpus
from tests.lab.qemu_accounts import allowed_cpus, cpu_seconds
from tests.libvirt.guests import Guest, Lab
from tests.libvirt.measuring import vcpu_threads

pytestmark = [pytest.mark.libvirt, pytest.mark.timeout(900)]

NOTHING = IsolationSettings()
CGROUP = 1 if Path("/sys/fs/cgroup/cpu").is_dir() else 2
HOST = Host(
    "lab-host", "kvm", pcpus=len(parse_cpus(Path("/sys/devices/system/cpu/online").read_text())), memory_mb=1024
)


def call(lab: Lab, *argv: str) -> str:
    """Run a command as an operator on the lab's host would."""
    return processes.call([*lab.daemon.inside, "env", "LIBVIRT_DEFAULT_URI=qemu:///system", *argv])


def do(lab: Lab, made: Sequence[Command]) -> None:
    for command in made:
        if command.argv:
            call(lab, *command.argv)


def undo(lab: Lab, made: Sequence[Command]) -> None:
    for command in reversed(made):
        if command.undo:
            call(lab, *command.undo)


@contextmanager
def applied(lab: Lab, guest: Guest, made: Sequence[Command]) -> Iterator[None]:
    """The commands hold meanwhile; what they undo leaves the guest as it was."""
    before = dump(lab, guest)
    try:
        do(lab, made)
        yield
    finally:
        undo(lab, made)
    assert dump(lab, guest) == before


def dump(lab: Lab, guest: Guest) -> list[str]:
    """What libvirt says holds for a guest, and what the kernel says of its threads."""
    asked = (
        ("schedinfo", guest.name), ("vcpupin", guest.name), ("emulatorpin", guest.name), ("iothreadinfo", guest.name),
        ("blkdeviotune", guest.name, "vda"), ("domiftune", guest.name, guest.tap),
    )  # fmt: skip
    said = [call(lab, "virsh", *words) for words in asked]
    return [*said, *(str(sorted(cpus)) for cpus in threads_allowed(lab, guest).values())]


def threads_allowed(lab: Lab, guest: Guest) -> dict[str, list[tuple[int, ...]]]:
    """The CPUs of a guest's threads by /proc: its vCPUs (`CPU 0/TCG`), its I/O threads (`IO iothread1`), the rest."""
    found: dict[str, list[tuple[int, ...]]] = {"vcpu": [], "io": [], "rest": []}
    for task in Path(f"/proc/{lab.qemu_pid(guest)}/task").iterdir():
        name = (task / "comm").read_text()
        kind = "vcpu" if name.startswith("CPU ") else "io" if name.startswith("IO iothread") else "rest"
        found[kind].append(parse_cpus(allowed_cpus(task)))
    return {kind: sorted(set(cpus)) for kind, cpus in found.items()}


def mac_of(lab: Lab, guest: Guest) -> str:
    return call(lab, "virsh", "--quiet", "domiflist", guest.name).split()[4]


@pytest.fixture
def shop(lab: Lab) -> Guest:
    return lab.guests[0]


@pytest.fixture
def batch(lab: Lab) -> Iterator[Guest]:
    """A guest that is there and does nothing, with an I/O thread."""
    guest = lab.add(f"batch-{time.monotonic_ns()}", paused=True)
    try:
        call(lab, "virsh", "iothreadadd", guest.name, "--id", "1", "--live")
        yield guest
    finally:
        lab.destroy(guest)


def instance(lab: Lab, guest: Guest, service: str = "throughput", settings: IsolationSettings = NOTHING) -> Instance:
    labels = {"disk": "vda", "mac": mac_of(lab, guest)}
    return Instance(guest.name, settings=settings, labels=labels, service=service)  # type: ignore[arg-type]


def cpu_percent(lab: Lab, guest: Guest, seconds: float = 3.0) -> float:
    """CPU time of the guest's vCPU thread by the scheduler's own account."""
    (thread,) = vcpu_threads(lab, guest)
    spent, since = _run_ns(thread), time.monotonic_ns()
    time.sleep(seconds)
    return 100 * (_run_ns(thread) - spent) / (time.monotonic_ns() - since)


def _run_ns(thread: Path) -> int:
    return int((thread / "schedstat").read_text().split()[0])


def wait_until_idle(lab: Lab, guest: Guest) -> None:
    (thread,) = vcpu_threads(lab, guest)

    def idle() -> bool:
        before = cpu_seconds(thread)
        time.sleep(0.5)
        return cpu_seconds(thread) - before < 0.05

    assert wait_until(idle, 30), f"{guest.name} does not become idle"


@pytest.mark.measured
@pytest.mark.parametrize("service", ["throughput", "latency"])
@pytest.mark.parametrize("cap_percent", [15, 40])
def test_a_rendered_cap_holds_within_5_percent_and_undo_restores_the_guest(
    lab: Lab, shop: Guest, cap_percent: float, service: str
) -> None:
    wait_until_idle(lab, shop)
    one = instance(lab, shop, service)
    ahead = commands(HOST, one, NOTHING, IsolationSettings(weight=25_600), cgroup=CGROUP)
    made = commands(HOST, one, NOTHING, IsolationSettings(cap_percent=cap_percent), cgroup=CGROUP)
    with applied(lab, shop, [*ahead, *made]):  # ahead of other work on the machine, so that the cap holds it back
        lab.ask(shop, "cgi-bin/spin?12")
        time.sleep(0.5)
        assert cpu_percent(lab, shop) == pytest.approx(cap_percent, rel=0.05)


def test_rendered_pins_are_the_threads_cpus_in_proc_and_the_driver_s_threads_go_to_its_own(
    lab: Lab, batch: Guest
) -> None:
    last = HOST.pcpus - 1
    host = replace(HOST, driver_cpus=(0,))
    one = replace(instance(lab, batch), labels={"iothreads": "1"})
    before = dump(lab, batch)
    everywhere = threads_allowed(lab, batch)
    made = commands(host, one, NOTHING, IsolationSettings(pinning=Pinning(((last,),))), cgroup=CGROUP)
    do(lab, made)
    assert threads_allowed(lab, batch) == {"vcpu": [(last,)], "io": [(0,)], "rest": [(0,)]}
    undo(lab, made)
    assert threads_allowed(lab, batch) == everywhere
    assert dump(lab, batch)[0] == before[0]
    assert [_pins(text) for text in dump(lab, batch)] == [_pins(text) for text in before]


def _pins(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@pytest.mark.measured
def test_a_rendered_disk_limit_holds_within_10_percent_and_undo_restores_the_guest(lab: Lab, shop: Guest) -> None:
    """QEMU lets a tenth of a second's worth through at once, which counts little in 16 MB."""
    wait_until_idle(lab, shop)
    limit_mb_s, megabytes = 4.0, 16
    made = commands(HOST, instance(lab, shop), NOTHING, IsolationSettings(disk_limit_mb_s=limit_mb_s), cgroup=CGROUP)
    free = _written(lab, shop, megabytes)
    if free < 2 * limit_mb_s:
        pytest.skip(f"the guest writes {free:.1f} MB/s without a limit")
    with applied(lab, shop, made):
        assert _written(lab, shop, megabytes) == pytest.approx(limit_mb_s, rel=0.10)


def _written(lab: Lab, guest: Guest, megabytes: int) -> float:
    """MB/s by the time that the guest takes to answer."""
    since = time.monotonic()
    lab.ask(guest, f"cgi-bin/write?{megabytes}")
    return megabytes * (1 << 20) / 1e6 / (time.monotonic() - since)


@pytest.mark.measured
def test_a_rendered_limit_of_the_interface_holds_within_10_percent_and_undo_restores_it(lab: Lab, shop: Guest) -> None:
    wait_until_idle(lab, shop)
    rate_mbit = 8.0
    wanted = IsolationSettings(network=NetworkSettings("dedicated", rate_mbit))
    made = commands(HOST, instance(lab, shop), NOTHING, wanted, cgroup=CGROUP)
    if not _polices(lab):
        # Then libvirt repeats what it asked of tc: 8 Mbit/s are 1000 kilobytes of 1000 bytes (tc(8), kbps).
        before = dump(lab, shop)
        with pytest.raises(LabError, match="police rate 1000kbps burst 800kb mtu 64kb drop"):
            do(lab, made)
        undo(lab, made)
        assert dump(lab, shop) == before
        pytest.skip("this kernel cannot police what a guest sends")
    with applied(lab, shop, made):
        lab.throughput(shop, 2, "100k")  # spends what may be sent at once
        sent, since = lab.tap_bytes(shop), time.monotonic()
        lab.throughput(shop, 5, "100k")
        measured = (lab.tap_bytes(shop) - sent) * 8 / 1e6 / (time.monotonic() - since)
        assert measured == pytest.approx(rate_mbit, rel=0.10)


def _polices(lab: Lab) -> bool:
    """Whether the kernel has the policer that libvirt puts on a tap."""
    device = "lab-policed"
    call(lab, "ip", "link", "add", device, "type", "bridge")
    try:
        call(lab, "tc", "qdisc", "add", "dev", device, "ingress")
        police = ("police", "rate", "1000kbps", "burst", "64kb", "mtu", "64kb", "drop", "flowid", ":1")
        start = ("tc", "filter", "add", "dev", device, "parent", "ffff:", "protocol", "all", "u32")
        call(lab, *start, "match", "u32", "0", "0", *police)
    except LabError:
        return False
    finally:
        call(lab, "ip", "link", "del", device)
    return True


def test_a_whole_plan_makes_room_first_and_undo_restores_resident_and_new_vm(
    lab: Lab, shop: Guest, batch: Guest
) -> None:
    last = Pinning(((HOST.pcpus - 1,),))
    now = IsolationSettings(pinning=last)
    resident = instance(lab, batch, settings=now)
    do(lab, commands(HOST, resident, NOTHING, now, cgroup=CGROUP))
    before = (dump(lab, shop), dump(lab, batch))
    made = plan(
        HOST,
        instance(lab, shop, "latency"),
        replace(now, weight=512, cap_percent=80),
        (resident,),
        {batch.name: IsolationSettings(pinning=Pinning(((0,),)), cap_percent=30, disk_limit_mb_s=5)},
        cgroup=CGROUP,
    )
    names = [command.argv[3] for command in made if command.argv]
    assert [name for name, _ in itertools.groupby(names)] == [batch.name, shop.name]
    try:
        do(lab, made)
        assert threads_allowed(lab, batch)["vcpu"] == [(0,)]
        assert threads_allowed(lab, shop)["vcpu"] == [(HOST.pcpus - 1,)]
    finally:
        undo(lab, made)
    assert [_pins(text) for text in dump(lab, shop)] == [_pins(text) for text in before[0]]
    assert [_pins(text) for text in dump(lab, batch)] == [_pins(text) for text in before[1]]


def test_a_guest_that_starts_with_the_rendered_definition_has_what_the_commands_would_set(
    lab: Lab, batch: Guest, tmp_path: Path
) -> None:
    host, wanted = replace(HOST, driver_cpus=(0,)), IsolationSettings(Pinning(((HOST.pcpus - 1,),)), 40, 512, None, 5)
    one = replace(instance(lab, batch), labels={"disk": "vda"})
    said, *made = plan(host, one, wanted, (), {}, cgroup=CGROUP)
    assert said.argv == ()
    do(lab, made)
    asked = dump(lab, batch)
    tree = _defined(lab, batch, tmp_path, said.note[said.note.index("<") :])
    path = lab.daemon.directory / "defined.xml"
    path.write_text(ElementTree.tostring(tree, encoding="unicode"), encoding="utf-8")
    call(lab, "virsh", "create", str(path), "--paused")
    twin = replace(batch, name="defined", tap="lab-tapdef")
    try:
        answered = dump(lab, twin)
        for index in (0, 1, 2, 4):  # the scheduler, both pins, the disk
            assert _pins(answered[index]) == _pins(asked[index])
        assert threads_allowed(lab, twin)["vcpu"] == [(HOST.pcpus - 1,)]
    finally:
        call(lab, "virsh", "destroy", "defined")


def _defined(lab: Lab, guest: Guest, folder: Path, fragments: str) -> ElementTree.Element:
    """The domain of another guest under a name of its own, as it was defined first, with the fragments written in."""
    domain = ElementTree.fromstring(call(lab, "virsh", "dumpxml", guest.name, "--inactive"))
    for gone in ("uuid", "cputune", "iothreads", "iothreadids"):
        for found in domain.findall(gone):
            domain.remove(found)
    domain.find("name").text = "defined"  # type: ignore[union-attr]
    interface, disk = domain.find("devices/interface"), domain.find("devices/disk")
    assert interface is not None
    assert disk is not None
    interface.remove(interface.find("mac"))  # type: ignore[arg-type]
    interface.find("target").set("dev", "lab-tapdef")  # type: ignore[union-attr]
    for found in disk.findall("iotune"):
        disk.remove(found)
    image = folder / "disk.raw"
    image.write_bytes(bytes(1 << 20))
    disk.find("source").set("file", str(image))  # type: ignore[union-attr]
    for log in domain.findall("devices/serial/source") + domain.findall("devices/console/source"):
        log.set("path", str(folder / "console.log"))
    for fragment in ElementTree.fromstring(f"<parts>{fragments}</parts>"):
        if fragment.tag == "disk":
            disk.append(fragment.find("iotune"))  # type: ignore[arg-type]
        else:
            domain.append(fragment)
    return domain
